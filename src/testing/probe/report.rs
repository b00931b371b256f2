//! What was found.

use std::fmt;

/// What became of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// As promised.
    Holds,
    /// Not as promised; what was seen instead.
    Fails(String),
    /// The service, or what is known of it, gives nothing to judge by; why.
    NotApplicable(String),
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// A name for programs.
    pub name: &'static str,
    /// What is promised.
    pub promise: &'static str,
    /// Whether it is kept.
    pub verdict: Verdict,
}

/// All checks, in the order in which they were made. Displayed as a table.
#[derive(Clone, Debug)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        Self { findings }
    }

    /// Whether nothing fails.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Every check.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The names of the checks that fail.
    pub fn failures(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Fails(_))).map(|finding| finding.name)
    }

    /// `{"passed": …, "findings": [{"name", "promise", "verdict": "holds" | "fails" | "not applicable", "detail"}]}`
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let findings: Vec<_> = self
            .findings
            .iter()
            .map(|finding| {
                let (verdict, detail) = finding.verdict.words();
                serde_json::json!({
                    "name": finding.name, "promise": finding.promise, "verdict": verdict, "detail": detail,
                })
            })
            .collect();
        serde_json::json!({ "passed": self.passed(), "findings": findings })
    }
}

impl Verdict {
    fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Holds => ("holds", None),
            Self::Fails(seen) => ("fails", Some(seen)),
            Self::NotApplicable(why) => ("not applicable", Some(why)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let (verdict, detail) = finding.verdict.words();
            writeln!(f, "{verdict:<15} {:<28} {}", finding.name, finding.promise)?;
            if let Some(detail) = detail {
                writeln!(f, "{:<15} {detail}", "")?;
            }
        }
        let of = |wanted: &str| self.findings.iter().filter(|finding| finding.verdict.words().0 == wanted).count();
        write!(f, "{} hold, {} fail, {} not applicable", of("holds"), of("fails"), of("not applicable"))
    }
}

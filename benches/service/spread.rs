//! A median with its quartiles.

use std::fmt;

#[derive(Clone, Copy)]
pub(crate) struct Spread {
    low: f64,
    pub(crate) median: f64,
    high: f64,
    decimals: usize,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Self { low: at(1), median: at(2), high: at(3), decimals: 2 }
    }

    /// Of the ratios of neighbours.
    pub(crate) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        Self::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
    }

    pub(crate) fn map(self, map: impl Fn(f64) -> f64) -> Self {
        Self { low: map(self.low), median: map(self.median), high: map(self.high), ..self }
    }

    pub(crate) fn rounded(self) -> Self {
        Self { decimals: 0, ..self }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.decimals;
        write!(f, "{:.digits$} ({:.digits$} to {:.digits$})", self.median, self.low, self.high)
    }
}

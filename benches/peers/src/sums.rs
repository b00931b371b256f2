//! Medians, and ratios of what took turns.

/// The median with the smallest and the largest.
pub(crate) struct Spread {
    pub(crate) least: f64,
    median: f64,
    most: f64,
}

pub(crate) fn spread(values: &[f64]) -> Spread {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    Spread { least: values[0], median: values[values.len() / 2], most: values[values.len() - 1] }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = f.precision().unwrap_or(2);
        write!(f, "{:.places$} ({:.places$} to {:.places$})", self.median, self.least, self.most)
    }
}

/// Round by round.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Spread {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    spread(&ratios)
}

//! How a row is printed.

use super::sides::Compared;

/// What a figure must be.
#[derive(Clone, Copy)]
pub(crate) enum Budget {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// It is only shown.
    None,
}

impl Budget {
    fn verdict(self, figure: f64) -> String {
        match self {
            Self::AtMost(most) if figure <= most => format!("  budget ≤ {most}: kept"),
            Self::AtMost(most) => format!("  budget ≤ {most}: MISSED"),
            Self::AtLeast(least) if figure >= least => format!("  budget ≥ {least}: kept"),
            Self::AtLeast(least) => format!("  budget ≥ {least}: MISSED"),
            Self::None => String::new(),
        }
    }
}

/// Prints a comparison: both medians, the median of the rounds' ratios, and how far those went apart.
pub(crate) fn ratio(what: &str, unit: &str, compared: &Compared, budget: Budget) {
    let Compared { own, floor, ratio, lowest, highest } = compared;
    println!(
        "{what:<52} {own:>9.2} {unit} against {floor:>8.2}: {ratio:>5.2} × ({lowest:.2} to {highest:.2}){}",
        budget.verdict(*ratio)
    );
}

/// Prints a single figure.
pub(crate) fn figure(what: &str, unit: &str, figure: f64, budget: Budget) {
    println!("{what:<52} {figure:>9.2} {unit}{}", budget.verdict(figure));
}

//! Two sides in alternating rounds.

/// What came of it.
pub(crate) struct Compared {
    /// The engine's own median.
    pub(crate) own: f64,
    /// The other side's.
    pub(crate) floor: f64,
    /// The median of the rounds' ratios, own to other.
    pub(crate) ratio: f64,
    /// The lowest of them.
    pub(crate) lowest: f64,
    /// The highest of them.
    pub(crate) highest: f64,
}

/// Runs so many rounds of both sides, one after the other, and first one of each that does not count.
/// A side gives its figure.
pub(crate) fn alternate(
    rounds: usize,
    mut own: impl FnMut() -> f64,
    mut floor: impl FnMut() -> f64,
) -> Compared {
    let mut pairs = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        // The order changes, so that neither side always comes second.
        let pair = if round % 2 == 0 {
            let first = own();
            (first, floor())
        } else {
            let first = floor();
            (own(), first)
        };
        if round > 0 {
            pairs.push(pair);
        }
    }
    compare(&pairs)
}

/// The same of figures that are there already: pairs of own and other.
pub(crate) fn compare(pairs: &[(f64, f64)]) -> Compared {
    let mut ratios: Vec<f64> = pairs.iter().map(|(own, floor)| own / floor).collect();
    ratios.sort_by(f64::total_cmp);
    Compared {
        own: median(pairs.iter().map(|pair| pair.0)),
        floor: median(pairs.iter().map(|pair| pair.1)),
        ratio: median(ratios.iter().copied()),
        lowest: ratios[0],
        highest: ratios[ratios.len() - 1],
    }
}

/// The middle one; of an even number the mean of the two in the middle.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) }
}

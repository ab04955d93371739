//! How a budget is shared among sources that may have less than their share.

/// What one source gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// How many.
    pub(super) count: usize,
    /// Whether it may have more.
    pub(super) more: bool,
}

/// Takes up to `budget` items from `sources` sources, asking `take(source, at most)`.
///
/// Source number `turn % sources` is asked first; each is offered an equal part of what is left,
/// so that an unused share goes to those behind it, and at the end to those before it. A caller
/// that counts `turn` up thus serves every source, even with a budget of 1.
pub(super) fn share<E>(
    budget: usize,
    sources: usize,
    turn: usize,
    mut take: impl FnMut(usize, usize) -> Result<Taken, E>,
) -> Result<Taken, E> {
    let mut left = budget;
    let mut open = Vec::new();
    let mut skipped = false;
    for step in 0..sources {
        if left == 0 {
            skipped = true;
            break;
        }
        let source = (turn % sources + step) % sources;
        let taken = take(source, left.div_ceil(sources - step))?;
        left = left.saturating_sub(taken.count);
        if taken.more {
            open.push(source);
        }
    }
    let mut more = skipped;
    for source in open {
        if left == 0 {
            more = true;
            break;
        }
        let taken = take(source, left)?;
        left = left.saturating_sub(taken.count);
        more |= taken.more;
    }
    Ok(Taken { count: budget - left, more })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Shares `budget` among sources that hold `held`; what each gave.
    fn run(budget: usize, turn: usize, held: &[usize]) -> (Vec<usize>, Taken) {
        let mut gave = vec![0; held.len()];
        let taken = share(budget, held.len(), turn, |source, most| {
            let count = most.min(held[source] - gave[source]);
            gave[source] += count;
            Ok::<_, Infallible>(Taken { count, more: gave[source] < held[source] })
        });
        let Ok(taken) = taken;
        (gave, taken)
    }

    #[test]
    fn equal_shares_and_nothing_wasted() {
        assert_eq!(run(9, 0, &[100, 100, 100]).0, [3, 3, 3]);
        assert_eq!(run(10, 0, &[100, 1, 1]).0, [8, 1, 1]);
        assert_eq!(run(10, 0, &[1, 1, 100]).0, [1, 1, 8]);
        assert_eq!(run(1, 0, &[5, 5]).0, [1, 0]);
        assert_eq!(run(1, 1, &[5, 5]).0, [0, 1]);
        assert_eq!(run(3, 0, &[]).0, [0; 0]);
    }

    proptest! {
        #[test]
        fn gives_all_there_is_up_to_the_budget(budget in 0usize..50, turn in any::<usize>(), held in prop::collection::vec(0usize..20, 0..8)) {
            let (gave, taken) = run(budget, turn, &held);
            let all: usize = held.iter().sum();
            prop_assert_eq!(taken.count, gave.iter().sum::<usize>());
            prop_assert_eq!(taken.count, budget.min(all));
            if taken.count < all {
                prop_assert!(taken.more);
            }
            // No source gets less than its equal share unless it holds less.
            let share = budget / held.len().max(1);
            for (gave, held) in gave.iter().zip(&held) {
                prop_assert!(*gave >= share.min(*held));
            }
        }
    }
}

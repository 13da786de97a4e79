//! Fixed turns: a cycle cut by request. No looking, no learning; what everybody was promised, and nothing hangs.

/// Long against a kernel, short against a second.
const CYCLE: u64 = 50_000_000;
/// Who was promised nothing gets this much of a cycle, for its streams must move.
const LEAST: u64 = 1_000_000;

/// What a container was promised, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) request: u32,
    pub(super) limit: u32,
}

/// Who is open `since` nanoseconds after the turns began, and how long that stays so.
pub(super) fn at(weights: &[Weight], since: u64) -> (Vec<bool>, u64) {
    let now = since % CYCLE;
    let sum: u64 = weights.iter().map(|w| u64::from(w.request)).sum::<u64>().max(1);
    let mut open = vec![false; weights.len()];
    let mut begin = 0;
    let mut until = CYCLE - now;
    for (i, weight) in weights.iter().enumerate() {
        // Requests that leave some over share the rest, up to their limits.
        let share = CYCLE * u64::from(weight.request) / sum;
        let most = CYCLE / 1000 * u64::from(weight.limit.min(1000));
        let turn = share.min(most).max(LEAST);
        let end = (begin + share.max(LEAST)).min(CYCLE);
        let closes = (begin + turn).min(CYCLE);
        open[i] = (begin..closes).contains(&now);
        for edge in [begin, closes] {
            if edge > now {
                until = until.min(edge - now);
            }
        }
        begin = end;
    }
    (open, until)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of a second each is open, in thousandths, and the longest any of them is closed.
    fn shares(weights: &[Weight]) -> (Vec<u64>, u64) {
        let (mut now, mut had, mut closed, mut worst) = (0, vec![0; weights.len()], vec![0; weights.len()], 0);
        while now < 1_000_000_000 {
            let (open, until) = at(weights, now);
            assert!(until > 0 && open.iter().filter(|o| **o).count() <= 1, "one at a time: {open:?}");
            for (i, open) in open.into_iter().enumerate() {
                if open {
                    had[i] += until;
                    closed[i] = 0;
                } else {
                    closed[i] += until;
                    worst = worst.max(closed[i]);
                }
            }
            now += until;
        }
        (had.into_iter().map(|h| h / 1_000_000).collect(), worst)
    }

    fn weights(list: &[(u32, u32)]) -> Vec<Weight> {
        list.iter().map(|&(request, limit)| Weight { request, limit }).collect()
    }

    #[test]
    fn everybody_gets_its_request_and_nobody_waits_long() {
        assert_eq!(shares(&weights(&[(300, 1000), (700, 1000)])).0, [300, 700]);
        assert_eq!(shares(&weights(&[(200, 1000), (300, 1000)])).0, [400, 600], "the rest is shared");
        assert_eq!(shares(&weights(&[(250, 250)])).0, [250], "a limit is a limit");
        assert_eq!(shares(&weights(&[(500, 1000)])).0, [1000]);
        let (had, worst) = shares(&weights(&[(0, 1000), (1000, 1000)]));
        assert!(had[0] >= 20 && had[1] >= 950, "even who was promised nothing moves: {had:?}");
        assert!(worst <= 50_000_000, "{worst}");
    }

    #[test]
    fn a_crowd_of_small_requests_still_fits() {
        let (had, worst) = shares(&weights(&[(10, 1000); 40]));
        assert!(had.iter().all(|h| *h >= 20), "{had:?}");
        assert!(worst < 100_000_000);
    }
}

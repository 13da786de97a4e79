//! Is there room on a card for all who want it? Then turns only cost: programs that leave the card alone while they think run side by
//! side, and the card itself switches between them faster than anybody could from outside. Who keeps a queue fills the card, however
//! small its part of it is now: with such a tenant there is no room.

use crate::Ns;

/// A judgement is about so much time.
const WINDOW: Ns = 10_000_000;
/// Below this part of the time at work, in thousandths, there is room.
const ROOM: u64 = 850;
/// Above this there is none.
const FULL: u64 = 930;
/// Work queued that takes so long is a queue that somebody keeps ...
const DEEP: Ns = 1_000_000;
/// ... if it is there for more than this part of the time.
const KEPT: u64 = 200;

#[derive(Clone, Debug, Default)]
pub(crate) struct Slack {
    room: bool,
    since: Ns,
    /// What the card had worked by then.
    busy: Ns,
    last: Ns,
    /// Time with a deep queue since.
    deep: Ns,
}

impl Slack {
    /// All who want the card may use it at once.
    pub(crate) fn is_there(&self) -> bool {
        self.room
    }

    /// A look at `now`, when the card had worked for `busy` in all, and what is queued takes so long.
    pub(crate) fn look(&mut self, now: Ns, contended: bool, busy: Ns, queued: Ns) {
        let since_last = now.saturating_sub(self.last);
        self.last = now;
        if queued >= DEEP {
            self.deep = self.deep.saturating_add(since_last);
        }
        let time = now.saturating_sub(self.since);
        if contended && time < WINDOW {
            return;
        }
        let part = busy.saturating_sub(self.busy).saturating_mul(1000) / time.max(1);
        let kept = self.deep.saturating_mul(1000) / time.max(1);
        self.room = contended && kept < KEPT && part < if self.room { FULL } else { ROOM };
        (self.since, self.busy, self.deep) = (now, busy, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_while_the_card_rests_between_its_tenants_work() {
        let mut slack = Slack::default();
        let mut busy = 0;
        let mut look = |slack: &mut Slack, at: Ns, part: Ns| {
            busy += part * WINDOW / 1000;
            slack.look(at * WINDOW, true, busy, 0);
            slack.is_there()
        };
        assert!(!look(&mut slack, 1, 1000), "a full card has none");
        assert!(look(&mut slack, 2, 500));
        assert!(look(&mut slack, 3, 900), "what is nearly full stays as it was");
        assert!(!look(&mut slack, 4, 980));
        assert!(!look(&mut slack, 5, 900));
        slack.look(6 * WINDOW, false, 0, 0);
        assert!(!slack.is_there(), "whoever comes next begins with turns");
    }

    #[test]
    fn there_is_none_with_somebody_who_keeps_a_queue() {
        let mut slack = Slack::default();
        for at in 1..100 {
            slack.look(at * WINDOW / 10, true, 0, if at % 10 < 4 { 2 * DEEP } else { 0 });
            assert!(!slack.is_there());
        }
    }
}

//! Is there room on a card for all who want it? Then turns only cost: programs that leave the card alone while they think run side by
//! side, and the card itself switches between them faster than anybody could from outside. Who keeps a queue fills the card, however
//! small its part of it is now: with such a tenant there is no room, unless that queue is only its neighbours' doing. That is so where
//! all together would need no more than the card, each alone, and with programs that submit in several streams.

use crate::Ns;
use crate::trial::Trial;
use crate::turn::GRIEVED;

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

/// Programs of several streams are kept back on the CPU while it is not their turn, and cannot submit meanwhile. Where all are of that
/// kind, or mostly think, for this part of the time ...
const BROAD: u64 = 800;
/// ... and the card has full chunks to do for less than this part of it, submitting seems to be what takes them so long, and turns would
/// only make it longer. In company each waits for the others' work, and neither its queue nor how busy the card is says more: it stays
/// so, unless a trial of turns gets more done.
const THIN: u64 = 750;
/// Who alone would need no more than this in all, in thousandths of the time, fits beside each other ...
const FITS: u64 = 1_050;
/// ... or still fits.
const FITS_STILL: u64 = 1_150;
/// Where somebody has missed this much of what it was promised, those who come off well wait until it is ...
const HURT: Ns = 10_000_000;
/// ... no more than this.
const UNHURT: Ns = GRIEVED.unsigned_abs();

/// Who was away for so long comes back with something else.
const AWAY: Ns = 5_000_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Slack {
    room: bool,
    since: Ns,
    /// What the card had worked by then.
    busy: Ns,
    last: Ns,
    busy_last: Ns,
    /// When several last wanted it.
    contended: Ns,
    /// There is room for what the programs are, and not for what the card has to do: a pause of one of them says nothing against it.
    side_by_side: bool,
    /// Time with a deep queue since.
    deep: Ns,
    /// Time since in which the card had full chunks to do.
    full: Ns,
    /// Time since in which all who worked did in several streams, or mostly think.
    broad: Ns,
    /// Who comes off well waits for who does not.
    yields: bool,
    trial: Trial,
}

/// What a card has to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Several want it.
    pub(crate) contended: bool,
    /// What it had worked in all.
    pub(crate) busy: Ns,
    /// What is queued takes so long.
    pub(crate) queued: Ns,
    /// Full chunks wait behind open gates.
    pub(crate) full: bool,
    /// All who work do in several streams, or mostly think.
    pub(crate) broad: bool,
    /// So much somebody has missed of what it was promised.
    pub(crate) missed: Ns,
    /// For this part of the time, in thousandths, those who want it would keep it busy, each alone and added up.
    pub(crate) demand: u64,
}

impl Slack {
    /// All who want the card may use it at once.
    pub(crate) fn is_there(&self) -> bool {
        self.room
    }

    /// All may, but somebody comes off worse than promised: others wait for it.
    pub(crate) fn yields(&self) -> bool {
        self.room && self.yields
    }

    /// Somebody has other shares than before, or comes back with something else: what was found out about turns is not about that.
    pub(crate) fn ask_again(&mut self) {
        self.trial = Trial::default();
    }

    /// A look at `now`. Who is away for less than `pause` only pauses.
    /// `lanes` is what each tenant has completed, and what a unit of it costs.
    pub(crate) fn look(&mut self, now: Ns, pause: Ns, load: Load, lanes: impl Iterator<Item = (u32, Ns)> + Clone) {
        self.yields = load.missed > if self.yields { UNHURT } else { HURT };
        let since_last = now.saturating_sub(self.last);
        let apart_for = if load.contended { 0 } else { now.saturating_sub(self.contended) };
        if apart_for > AWAY {
            self.ask_again();
        }
        let in_company = apart_for < pause;
        self.trial.look(now, if in_company { since_last } else { 0 }, lanes);
        let worked = load.busy.saturating_sub(core::mem::replace(&mut self.busy_last, load.busy));
        self.last = now;
        if load.contended {
            self.contended = now;
        } else if self.side_by_side && in_company {
            // Somebody thinks for a moment, and what is seen meanwhile says nothing.
            (self.since, self.busy) = (self.since.saturating_add(since_last), self.busy.saturating_add(worked));
            return;
        }
        if load.queued >= DEEP {
            self.deep = self.deep.saturating_add(since_last);
        }
        if load.full {
            self.full = self.full.saturating_add(since_last);
        }
        if load.broad {
            self.broad = self.broad.saturating_add(since_last);
        }
        let time = now.saturating_sub(self.since);
        if load.contended && time < WINDOW {
            return;
        }
        let part = |of: Ns| of.saturating_mul(1000) / time.max(1);
        let (busy, deep) = (part(load.busy.saturating_sub(self.busy)), part(self.deep));
        let broad = part(self.broad) > BROAD;
        let unhurt = load.missed < UNHURT;
        let for_their_streams = broad
            && match self.trial.is_for_turns() {
                Some(turns) => !turns,
                None => self.room || (deep < KEPT && part(self.full) < THIN && unhurt),
            };
        let rests = deep < KEPT && busy < if self.room { FULL } else { ROOM };
        let fits = if self.room { load.demand < FITS_STILL } else { load.demand < FITS && unhurt };
        let tries_turns = broad && self.trial.tries_turns();
        self.room = load.contended && !tries_turns && (rests || for_their_streams || fits);
        self.side_by_side = self.room && (for_their_streams || load.demand < FITS_STILL);
        if self.room && for_their_streams && !rests {
            self.trial.is_wanted();
        }
        (self.since, self.busy) = (now, load.busy);
        (self.deep, self.full, self.broad) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use core::iter::empty;

    use super::*;

    const PAUSE: Ns = 50_000_000;

    #[test]
    fn there_is_room_while_the_card_rests_between_its_tenants_work() {
        let mut slack = Slack::default();
        let mut busy = 0;
        let mut look = |slack: &mut Slack, at: Ns, part: Ns| {
            busy += part * WINDOW / 1000;
            slack.look(at * WINDOW, PAUSE, Load { contended: true, busy, demand: 2000, ..Load::default() }, empty());
            slack.is_there()
        };
        assert!(!look(&mut slack, 1, 1000), "a full card has none");
        assert!(look(&mut slack, 2, 500));
        assert!(look(&mut slack, 3, 900), "what is nearly full stays as it was");
        assert!(!look(&mut slack, 4, 980));
        assert!(!look(&mut slack, 5, 900));
        assert!(look(&mut slack, 6, 500));
        slack.look(7 * WINDOW, PAUSE, Load::default(), empty());
        assert!(!slack.is_there(), "whoever comes next begins with turns");
    }

    #[test]
    fn there_is_none_with_somebody_who_keeps_a_queue() {
        let mut slack = Slack::default();
        for at in 1..100 {
            let queued = if at % 10 < 4 { 2 * DEEP } else { 0 };
            slack.look(
                at * WINDOW / 10,
                PAUSE,
                Load { contended: true, queued, demand: 2000, ..Load::default() },
                empty(),
            );
            assert!(!slack.is_there());
        }
    }

    #[test]
    fn who_would_need_no_more_than_the_card_in_all_fits_beside_each_other_until_somebody_needs_more() {
        let mut slack = Slack::default();
        let look = |slack: &mut Slack, at: Ns, demand: u64, missed: Ns| {
            slack.look(
                at * WINDOW,
                PAUSE,
                Load { contended: true, busy: at * WINDOW, queued: 2 * DEEP, demand, missed, ..Load::default() },
                empty(),
            );
            slack.is_there()
        };
        assert!(!look(&mut slack, 1, 2 * FITS, 0));
        assert!(!look(&mut slack, 2, FITS - 50, HURT), "not while somebody is owed something");
        assert!(look(&mut slack, 3, FITS - 50, 0), "a full card and a queue are each other's doing");
        assert!(look(&mut slack, 4, FITS + 50, 0));
        assert!(!look(&mut slack, 5, FITS_STILL + 50, 0));
    }

    /// Side by side, then in turns, in which they get as much done.
    #[test]
    fn what_was_found_out_about_turns_stands_until_they_were_away() {
        let mut slack = Slack::default();
        let busy = Load { contended: true, broad: true, demand: 2000, ..Load::default() };
        let mut now = 0;
        let mut pass = |slack: &mut Slack, time: Ns, load: Load| {
            for _ in 0..time / WINDOW {
                now += WINDOW;
                let done = (now / WINDOW) as u32;
                slack.look(now, PAUSE, Load { busy: now, ..load }, [(done, 10_000), (done, 10_000)].into_iter());
            }
            slack.is_there()
        };
        assert!(pass(&mut slack, 10 * WINDOW, busy), "they look as if they needed it");
        assert!(!pass(&mut slack, 3_000_000_000, busy), "nobody gains by it");
        pass(&mut slack, AWAY - 10 * WINDOW, Load::default());
        assert!(!pass(&mut slack, 10 * WINDOW, busy));
        pass(&mut slack, AWAY + 10 * WINDOW, Load::default());
        assert!(pass(&mut slack, 10 * WINDOW, busy), "with something else, as far as anybody knows");
        slack.ask_again();
        assert!(pass(&mut slack, 10 * WINDOW, busy));
    }

    #[test]
    fn programs_that_take_long_to_submit_in_several_streams_run_side_by_side() {
        let mut slack = Slack::default();
        let look = |slack: &mut Slack, at: Ns, load: Load| {
            slack.look(at * WINDOW, PAUSE, Load { contended: true, busy: at * WINDOW, demand: 2000, ..load }, empty());
            slack.is_there()
        };
        assert!(!look(&mut slack, 1, Load { broad: true, full: true, ..Load::default() }), "they keep the card busy");
        assert!(!look(&mut slack, 2, Load::default()), "of one stream each");
        assert!(look(&mut slack, 3, Load { broad: true, ..Load::default() }));
        assert!(
            look(&mut slack, 4, Load { broad: true, full: true, ..Load::default() }),
            "in company it is always full"
        );
        let hurt = Load { broad: true, missed: 2 * HURT, ..Load::default() };
        assert!(look(&mut slack, 5, hurt) && slack.yields(), "others wait, which is better for all than turns");
        assert!(look(&mut slack, 6, Load { missed: HURT / 2, ..hurt }) && slack.yields());
        assert!(look(&mut slack, 7, Load { missed: 0, ..hurt }) && !slack.yields());
        let deep = Load { queued: 2 * DEEP, ..Load::default() };
        assert!(look(&mut slack, 8, Load { broad: true, ..deep }));
        slack.look(8 * WINDOW + PAUSE - 1, PAUSE, Load::default(), empty());
        assert!(slack.is_there(), "somebody thinks for a moment");
        assert!(look(&mut slack, 14, Load { broad: true, ..deep }));
        assert!(!look(&mut slack, 15, deep), "somebody who keeps a queue has come");
    }
}

//! What wholly free devices are worth to requests for several of them at once: those get all of them on one node, with all the CPU they
//! ask for, or nothing.

use super::{MANY, SEVERAL};

/// A kind of request for several devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// How many, at least two.
    pub(super) devices: usize,
    /// CPU it needs, in thousandths of a core.
    pub(super) cpu: u64,
    /// How much is taken of them in all, in devices: not always whole ones.
    pub(super) taken: f64,
    /// Its share of all pods.
    pub(super) share: f64,
}

impl Want {
    /// How many of the kind find room.
    fn fit(&self, room: &Room) -> u64 {
        let by_devices = (room.free / self.devices) as u64;
        room.cpu.checked_div(self.cpu).map_or(by_devices, |by_cpu| by_devices.min(by_cpu))
    }
}

/// Wholly free devices of one model on one node, and the CPU beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Room {
    pub(super) free: usize,
    pub(super) cpu: u64,
}

/// A value that grows with the CPU there is: from so much CPU on, so much.
#[derive(Clone, Debug, Default, PartialEq)]
struct Steps(Vec<(u64, f32)>);

impl Steps {
    fn of(mut gains: Vec<(u64, f64)>) -> Steps {
        gains.sort_unstable_by_key(|(cpu, _)| *cpu);
        let (mut steps, mut sum) = (Vec::<(u64, f32)>::new(), 0.0);
        for (cpu, gain) in gains {
            sum += gain;
            match steps.last_mut() {
                Some((from, value)) if *from == cpu => *value = sum as f32,
                _ => steps.push((cpu, sum as f32)),
            }
        }
        Steps(steps)
    }

    fn at(&self, cpu: u64) -> f32 {
        match self.0.partition_point(|(from, _)| *from <= cpu) {
            0 => 0.0,
            n => self.0[n - 1].1,
        }
    }
}

/// The value of free devices to requests for several, by model, number and CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Several(Vec<[Steps; MANY + 1]>);

impl Several {
    /// From what is wanted, of which models, and the room there is for it on each; `left` is all that is left of devices. The scarcer
    /// the room for a kind of request beside its share of the pods, the more it is worth.
    pub(super) fn of(wants: &[(Want, &[bool])], rooms: &[Vec<Room>], left: f64) -> Several {
        let mut gains = vec![vec![Vec::new(); MANY + 1]; rooms.len()];
        for (want, accepted) in wants {
            let own = || (0..rooms.len()).filter(|model| accepted[*model]);
            let fit: u64 = own().flat_map(|model| &rooms[model]).map(|room| want.fit(room)).sum();
            let value = SEVERAL * want.share * want.taken * left / (fit as f64 * want.taken).max(1.0);
            for model in own() {
                for (free, gains) in gains[model].iter_mut().enumerate() {
                    gains.extend((1..=free / want.devices).map(|n| ((n as u64).saturating_mul(want.cpu), value)));
                }
            }
        }
        let table = |gains: Vec<Vec<(u64, f64)>>| {
            let mut gains = gains.into_iter();
            std::array::from_fn(|_| Steps::of(gains.next().unwrap_or_default()))
        };
        Several(gains.into_iter().map(table).collect())
    }

    /// What so many free devices of a model are worth beside so much CPU.
    pub(super) fn at(&self, model: u16, room: Room) -> f32 {
        self.0.get(usize::from(model)).map_or(0.0, |by| by[room.free.min(MANY)].at(room.cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of all pods want four devices and eight cores, on one model of two; ten free devices' worth is left.
    fn several(rooms: &[Room]) -> Several {
        let want = Want { devices: 4, cpu: 8000, taken: 4.0, share: 0.5 };
        Several::of(&[(want, &[true, false])], &[rooms.to_vec(), rooms.to_vec()], 10.0)
    }

    #[test]
    fn devices_count_together_and_with_all_the_cpu_or_not_at_all() {
        let several = several(&[Room { free: 8, cpu: 16_000 }]);
        let at = |free, cpu| several.at(0, Room { free, cpu });
        let one = at(4, 8000);
        assert!(one > 0.0);
        assert_eq!((at(3, 8000), at(4, 7999), at(7, 16_000)), (0.0, 0.0, one));
        assert_eq!((at(8, 16_000), at(8, 15_999)), (2.0 * one, one));
        assert_eq!(several.at(1, Room { free: 8, cpu: 16_000 }), 0.0, "nobody wants this model");
    }

    #[test]
    fn the_less_room_there_is_the_more_it_is_worth() {
        let (free, cpu) = (4, 8000);
        let scarce = several(&[Room { free, cpu }, Room { free, cpu: 4000 }]);
        let plenty = several(&[Room { free, cpu }, Room { free, cpu }]);
        assert_eq!(scarce.at(0, Room { free, cpu }), 2.0 * plenty.at(0, Room { free, cpu }));
    }
}

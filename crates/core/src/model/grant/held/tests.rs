use proptest::prelude::*;

use super::*;
use crate::model::ask::Role;
use crate::model::device::{DeviceKind, Isolation};
use crate::model::grant::ContainerGrant;

fn slice(device: &str, gib: u64, share: u32) -> Slice {
    Slice {
        device: device.into(),
        kind: DeviceKind::Gpu,
        memory: Bytes::gib(gib),
        memory_limit: Bytes::gib(gib),
        share: Share(share),
        share_limit: Share(share),
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    }
}

fn grant(gib: u64, share: u32) -> Grant {
    let container = |name: &str, role, device| ContainerGrant {
        name: name.into(),
        role,
        slices: vec![slice(device, gib, share), slice("GPU-9", gib, share)],
    };
    let containers = vec![container("early", Role::Init, "GPU-0"), container("main", Role::Main, "GPU-0")];
    Grant { v: Grant::VERSION, at: 1000, policy: "frag".into(), containers, claim: None }
}

fn text(grant: &Grant) -> String {
    serde_json::to_string(grant).unwrap()
}

/// Everything that a resize must leave as it is, changed one at a time.
fn mischief() -> impl Strategy<Value = (&'static str, Grant)> {
    let change = |what, change: fn(&mut Grant)| {
        let mut changed = grant(8, 500);
        change(&mut changed);
        (what, changed)
    };
    prop::sample::select(vec![
        change("v", |g| g.v = 0),
        change("policy", |g| g.policy = "other".into()),
        change("claim", |g| g.claim = Some("c".into())),
        change("containers", |g| g.containers.clear()),
        change("containers", |g| g.containers.push(g.containers[0].clone())),
        change("containers[0].name", |g| g.containers[0].name = "main".into()),
        change("containers[0].role", |g| g.containers[0].role = Role::Main),
        change("containers[1].role", |g| g.containers[1].role = Role::Init),
        change("containers[1].slices", |g| g.containers[1].slices.truncate(1)),
        change("containers[1].slices", |g| g.containers[1].slices.clear()),
        change("containers[1].slices[0].device", |g| g.containers[1].slices[0].device = "GPU-1".into()),
        change("containers[1].slices[0].kind", |g| g.containers[1].slices[0].kind = DeviceKind::Nic),
        change("containers[1].slices[0].exclusive", |g| g.containers[1].slices[0].exclusive = true),
        change("containers[1].slices[0].isolation", |g| g.containers[1].slices[0].isolation = Isolation::None),
        change("containers[1].slices[1].partition", |g| g.containers[1].slices[1].partition = Some("1g.5gb".into())),
        // Devices in another order are other devices for the container.
        change("containers[1].slices[0].device", |g| g.containers[1].slices.reverse()),
    ])
}

proptest! {
    #[test]
    fn amounts_alone_can_change_and_nothing_else_does((what, wish) in mischief(), gib in 1u64..64, share in 1u32..1000) {
        let before = held(&text(&grant(4, 300)), Some(&text(&grant(gib, share)))).unwrap();
        let refused = wished(&before, Some(&text(&wish))).unwrap().unwrap_err();
        prop_assert!(refused.contains(what), "{refused}");
        // The same in the annotation that counts: it is as if it were not there.
        let broken = held(&text(&grant(4, 300)), Some(&text(&wish))).unwrap();
        prop_assert_eq!(broken.now(), &grant(4, 300));
        prop_assert!(broken.ignored.unwrap().contains(what));
    }

    #[test]
    fn any_amounts_that_make_sense_are_taken_and_counted_from_their_own_moment(
        memory in 0u64..1 << 40, more in 0u64..1 << 40, share in 0u32..=1000, time in 0u32..=1000, at in any::<u64>(),
    ) {
        let mut next = grant(4, 300);
        let slice = &mut next.containers[1].slices[1];
        (slice.memory, slice.memory_limit) = (Bytes(memory), Bytes(memory + more));
        (slice.share, slice.share_limit) = (Share(share.min(time)), Share(share.max(time)));
        let first = held(&text(&grant(4, 300)), None).unwrap();
        if next != *first.now() {
            prop_assert_eq!(wished(&first, Some(&text(&next))), Some(Ok(next.clone())));
        }
        let now = held(&text(&grant(4, 300)), Some(&admission(&next, Time(at)))).unwrap();
        prop_assert_eq!(now.now(), &next);
        prop_assert_eq!(now.granted.at, 1000);
        prop_assert_eq!(now.admitted.unwrap().at, Time(at.max(1000)));
    }
}

#[test]
fn a_change_that_cannot_be_read_or_makes_no_sense_leaves_the_grant_as_it_was() {
    let over = text(&grant(8, 300)).replacen(r#""share":300"#, r#""share":301"#, 1);
    for (bad, why) in [
        ("{", "cannot be read"),
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        (over.as_str(), "books more on GPU-0 for early"),
        (&text(&grant(8, 1001)), "a limit of 1.001 of the time of GPU-0"),
    ] {
        let held = held(&text(&grant(4, 300)), Some(bad)).unwrap();
        assert_eq!(*held.now(), grant(4, 300), "{bad}");
        assert!(held.ignored.as_ref().unwrap().contains(why), "{held:?}");
        assert!(wished(&held, Some(bad)).unwrap().unwrap_err().contains(why));
    }
    assert!(held("{", Some(&text(&grant(4, 300)))).unwrap_err().contains("cannot be read"));
}

#[test]
fn what_is_held_alone_or_cut_by_hardware_has_no_amounts_to_choose() {
    let changes: [fn(&mut Slice); 3] =
        [|s| s.exclusive = true, |s| s.partition = Some("1g.5gb".into()), |s| s.kind = DeviceKind::Nic];
    for change in changes {
        let made = |gib| {
            let mut grant = grant(gib, 300);
            grant.containers.iter_mut().flat_map(|c| &mut c.slices).for_each(change);
            grant
        };
        assert!(resized(&made(4), &made(8)).unwrap_err().contains("held alone, or cut by hardware"));
        assert_eq!(resized(&made(4), &made(4)), Ok(made(4)));
    }
}

#[test]
fn a_wish_that_is_taken_back_asks_for_what_was_granted_first() {
    let first = text(&grant(4, 300));
    let now = held(&first, Some(&text(&grant(8, 300)))).unwrap();
    assert_eq!(wished(&now, Some(&text(&grant(8, 300)))), None, "it has that");
    assert_eq!(wished(&now, None), Some(Ok(grant(4, 300))));
    assert_eq!(wished(&held(&first, None).unwrap(), None), None);
}

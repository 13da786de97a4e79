use proptest::prelude::*;

use super::*;

fn process() -> impl Strategy<Value = SeenProcess> {
    (any::<u32>(), any::<u32>(), any::<u64>(), any::<[u8; 16]>(), any::<u64>())
        .prop_map(|(pid, utilisation, memory, name, since_ns)| SeenProcess { pid, utilisation, memory, name, since_ns })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
            |(slot, pid, generation, token, layout)| Message::Hello(Hello { slot, pid, generation, token, layout })
        ),
        (any::<u32>(), any::<u32>(), any::<u64>())
            .prop_map(|(refused, host_pid, generation)| Message::Welcome(Welcome { refused, host_pid, generation })),
        (any::<u32>(), any::<u32>()).prop_map(|(device, from)| Message::Query { device, from }),
        (any::<u32>(), proptest::collection::vec(process(), 0..=PER_FRAME))
            .prop_map(|(total, listed)| Message::Processes { total, listed }),
        (1u32..8, any::<u32>(), any::<u64>(), any::<u64>()).prop_filter_map("kind", |(kind, device, value, more)| {
            EventKind::from_raw(kind).map(|kind| Message::Event(Event { kind, device, value, more }))
        }),
    ]
}

proptest! {
    #[test]
    fn every_message_comes_back(message in message()) {
        let mut frame = [0; MAX_FRAME];
        let length = message.encode(&mut frame);
        prop_assert_eq!(Message::decode(&frame[..length]), Ok(message));
    }

    #[test]
    fn any_bytes_are_a_message_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..MAX_FRAME + 9)) {
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn a_frame_with_some_bytes_changed_is_a_message_or_a_fault(
        message in message(),
        changes in proptest::collection::vec((0..MAX_FRAME, any::<u8>()), 1..4),
        cut in 0..MAX_FRAME,
    ) {
        let mut frame = [0; MAX_FRAME];
        let length = message.encode(&mut frame);
        for (at, byte) in changes {
            frame[at % length] = byte;
        }
        let _ = Message::decode(&frame[..length]);
        prop_assert!(Message::decode(&frame[..cut.min(length - 1)]).is_err(), "cut short");
    }
}

#[test]
fn what_a_newer_version_says_is_told_apart_from_noise() {
    let mut frame = [0; MAX_FRAME];
    let length = Message::Query { device: 0, from: 0 }.encode(&mut frame);
    frame[4] = 77;
    assert_eq!(Message::decode(&frame[..length]), Err(FrameFault::Unknown));
    frame[0] = 0;
    assert_eq!(Message::decode(&frame[..length]), Err(FrameFault::NotOurs));
}

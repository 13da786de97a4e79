use divvy_core::ask::{DeviceAsk, Dialect, MemoryAsk, Topology};
use divvy_core::keys::*;
use divvy_core::units::Share;
use divvy_dialects::Reading;
use serde_json::json;

use crate::support::{bare, pod, wrong_keys};

#[test]
fn memory_is_asked_for_in_the_nodes_units() {
    let pod = pod(&[(GPUSHARE_MEMORY, "3")]);
    let want = pod.want();
    assert_eq!(want, DeviceAsk { memory: MemoryAsk::NodeUnits(3), ..DeviceAsk::default() });
    assert_eq!((want.share, want.share_limit), (Share(0), Share(1000)), "no compute is booked and none is capped");
    assert_eq!(pod.ask().dialect, Dialect::Gpushare);
}

#[test]
fn al_13_two_containers_share_the_pods_card() {
    let ask = bare().container("a", &[(GPUSHARE_MEMORY, "1")]).container("b", &[(GPUSHARE_MEMORY, "2")]).ask();
    assert_eq!(ask.topology, Topology::SameDevice);
    let memory: Vec<MemoryAsk> = ask.containers.iter().map(|container| container.wants[0].memory).collect();
    assert_eq!(memory, [MemoryAsk::NodeUnits(1), MemoryAsk::NodeUnits(2)]);
}

#[test]
fn ten_g_is_not_ten_gigabytes_and_says_so() {
    for text in ["10G", "3Gi", "2Mi", "1Ki", "1M", "1e3", "1e9"] {
        let mistakes = pod(&[(GPUSHARE_MEMORY, text)]).mistakes();
        assert_eq!(wrong_keys(&mistakes), [GPUSHARE_MEMORY], "{text}");
        assert!(mistakes[0].mend.contains("write the bare number"), "{}", mistakes[0]);
        assert_eq!(mistakes[0].value.as_deref(), Some(text), "it quotes what was written");
    }
    assert_eq!(
        pod(&[(GPUSHARE_MEMORY, "16k")]).want().memory,
        MemoryAsk::NodeUnits(16000),
        "so the API server writes 16000"
    );
    assert_eq!(
        pod(&[(GPUSHARE_MEMORY, "16276")]).want().memory,
        MemoryAsk::NodeUnits(16276),
        "MiB where the node counts so"
    );
}

#[test]
fn a_count_spreads_the_memory_evenly() {
    for spread in [
        pod(&[(GPUSHARE_MEMORY, "8")]).label(GPUSHARE_COUNT, "2"),
        pod(&[(GPUSHARE_MEMORY, "8"), (GPUSHARE_COUNT, "2")]),
        pod(&[(GPUSHARE_MEMORY, "8"), (GPUSHARE_COUNT, "2")]).label(GPUSHARE_COUNT, "2"),
    ] {
        let want = spread.want();
        assert_eq!((want.count, want.memory), (2, MemoryAsk::NodeUnits(4)));
    }
    assert_eq!(wrong_keys(&pod(&[(GPUSHARE_MEMORY, "7")]).label(GPUSHARE_COUNT, "2").mistakes()), [GPUSHARE_MEMORY]);
    assert_eq!(
        wrong_keys(&pod(&[(GPUSHARE_MEMORY, "8"), (GPUSHARE_COUNT, "4")]).label(GPUSHARE_COUNT, "2").mistakes()),
        [GPUSHARE_COUNT]
    );
    assert_eq!(wrong_keys(&pod(&[(GPUSHARE_MEMORY, "8")]).label(GPUSHARE_COUNT, "two").mistakes()), [GPUSHARE_COUNT]);
}

#[test]
fn a_label_that_counts_too_many_cards_says_how_many_there_may_be() {
    let mistakes = pod(&[(GPUSHARE_MEMORY, "8")]).label(GPUSHARE_COUNT, "2000").mistakes();
    assert_eq!(wrong_keys(&mistakes), [GPUSHARE_COUNT]);
    assert_eq!(mistakes[0].mend, "write 1 to 1024");
}

#[test]
fn what_is_only_requested_is_to_be_written_under_limits() {
    let requested = json!({"requests": {(GPUSHARE_MEMORY): "3"}});
    let mistakes = bare().container("main", &[]).with("resources", requested).mistakes();
    assert_eq!(wrong_keys(&mistakes), [GPUSHARE_MEMORY]);
    assert_eq!(mistakes[0].mend, "write it under limits");
    let both = json!({"requests": {(GPUSHARE_MEMORY): "3"}, "limits": {(GPUSHARE_MEMORY): 3}});
    assert_eq!(bare().container("main", &[]).with("resources", both).want().memory, MemoryAsk::NodeUnits(3));
}

#[test]
fn a_count_alone_is_whole_cards() {
    assert_eq!(pod(&[(GPUSHARE_COUNT, "2")]).want(), DeviceAsk::whole(2));
}

#[test]
fn nothing_is_nothing() {
    assert_eq!(pod(&[(GPUSHARE_MEMORY, "0")]).read(), Reading::NotOurs);
    assert_eq!(pod(&[(GPUSHARE_MEMORY, "0")]).label(GPUSHARE_COUNT, "2").read(), Reading::NotOurs);
    assert_eq!(pod(&[]).label(GPUSHARE_COUNT, "2").read(), Reading::NotOurs, "a label alone asks for nothing");
}

#[test]
fn malformed_amounts_are_refused() {
    for text in ["-1", "0.5", "three", ""] {
        assert_eq!(wrong_keys(&pod(&[(GPUSHARE_MEMORY, text)]).mistakes()), [GPUSHARE_MEMORY], "{text}");
    }
}

use divvy_core::ask::{Class, DeviceAsk, Dialect, Gang, MemoryAsk, ModelPattern, Topology};
use divvy_core::keys::*;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::Reading;
use serde_json::json;

use crate::support::{Pod, bare, pod, wrong_keys};

fn labelled(labels: &[(&str, &str)]) -> Pod {
    labels.iter().fold(pod(&[]), |pod, (key, value)| pod.label(key, value))
}

fn fraction(request: &str, limit: &str) -> Pod {
    labelled(&[(KUBESHARE_REQUEST, request), (KUBESHARE_LIMIT, limit)])
}

#[test]
fn ks_01_half_a_gpu_books_half_its_time_and_memory() {
    let ask = fraction("0.5", "1.0").ask();
    assert_eq!(ask.dialect, Dialect::Kubeshare);
    let expected = DeviceAsk {
        memory: MemoryAsk::Part(Share(500)),
        share: Share(500),
        share_limit: Share(1000),
        ..DeviceAsk::default()
    };
    assert_eq!(ask.containers[0].wants, [expected]);
    assert_eq!(Bytes(8_589_934_592).thousandths(Share(500)), Bytes(4_294_967_296));
}

#[test]
fn ks_02_a_request_above_its_limit_is_refused_by_name() {
    let mistakes = fraction("0.5", "0.3").mistakes();
    assert_eq!(wrong_keys(&mistakes), [KUBESHARE_REQUEST]);
    assert_eq!(
        mistakes[0].to_string(),
        "label sharedgpu/gpu_request = \"0.5\": is above the limit of 0.3; lower it, or raise sharedgpu/gpu_limit"
    );
}

#[test]
fn ks_03_two_and_a_half_gpus_are_refused_by_name() {
    let mistakes = fraction("2", "2.5").mistakes();
    assert_eq!(wrong_keys(&mistakes), [KUBESHARE_LIMIT]);
    assert!(mistakes[0].problem.contains("not a whole number"), "{}", mistakes[0]);
}

#[test]
fn ks_04_above_one_request_and_limit_must_be_equal() {
    let mistakes = fraction("1.0", "2.0").mistakes();
    assert_eq!(wrong_keys(&mistakes), [KUBESHARE_LIMIT]);
    assert!(mistakes[0].problem.contains("equal"), "{}", mistakes[0]);
    assert_eq!(fraction("2", "2.0").want(), DeviceAsk::whole(2), "however they are spelled");
}

#[test]
fn ks_06_memory_with_a_suffix_is_refused_by_name() {
    for memory in ["1Gi", "-1", "1.5", "", "99999999999999999999"] {
        let mistakes = fraction("0.5", "1.0").label(KUBESHARE_MEMORY, memory).mistakes();
        assert_eq!(wrong_keys(&mistakes), [KUBESHARE_MEMORY], "{memory}");
    }
    let want = fraction("0.5", "1.0").label(KUBESHARE_MEMORY, "1073741824").want();
    assert_eq!(want.memory, MemoryAsk::Bytes(Bytes::gib(1)));
}

#[test]
fn ks_07_a_priority_is_a_number_up_to_100_and_nothing_is_0() {
    for priority in ["101", "abc", "1.5"] {
        let mistakes = fraction("0.5", "1.0").label(KUBESHARE_PRIORITY, priority).mistakes();
        assert_eq!(wrong_keys(&mistakes), [KUBESHARE_PRIORITY], "{priority}");
        let ordinary = pod(&[]).label(KUBESHARE_PRIORITY, priority).mistakes();
        assert_eq!(wrong_keys(&ordinary), [KUBESHARE_PRIORITY], "checked on every pod");
    }
    for unset in [fraction("0.5", "1.0"), fraction("0.5", "1.0").label(KUBESHARE_PRIORITY, "")] {
        assert_eq!(unset.ask().priority, 0);
        assert_eq!(unset.ask().class, Some(Class::Opportunistic));
    }
    let guaranteed = fraction("0.5", "1.0").label(KUBESHARE_PRIORITY, "50").ask();
    assert_eq!((guaranteed.priority, guaranteed.class), (50, Some(Class::Guarantee)));
}

#[test]
fn ks_08_ten_gpus_may_be_written_without_a_point() {
    for ten in ["10", "10.0"] {
        assert_eq!(fraction(ten, ten).want(), DeviceAsk::whole(10));
    }
    for many in ["20", "100", "101", "120"] {
        assert_eq!(fraction(many, many).want().count.to_string(), many);
    }
}

#[test]
fn ks_09_two_whole_gpus_are_exclusive() {
    assert_eq!(fraction("2.0", "2.0").want(), DeviceAsk::whole(2));
}

#[test]
fn ks_17_a_group_waits_for_the_rounded_part_of_its_headcount() {
    let gang = |headcount: &str, threshold: &str| {
        fraction("0.5", "1.0")
            .label(KUBESHARE_GROUP, "a")
            .label(KUBESHARE_HEADCOUNT, headcount)
            .label(KUBESHARE_THRESHOLD, threshold)
            .ask()
            .gang
            .unwrap()
    };
    for (headcount, threshold, min) in
        [("5", "0.2", 1), ("10", "0.25", 3), ("3", "0.5", 2), ("4", "1.0", 4), ("5", "0.05", 0), ("5", "2.0", 10)]
    {
        assert_eq!(gang(headcount, threshold).min, min, "{headcount} * {threshold}");
    }
    assert_eq!(gang("5", "2.0").size, 10, "five pods never suffice");
    assert_eq!(gang("5", "0.05"), Gang { name: "a".into(), size: 5, min: 0 });
}

#[test]
fn ks_27_a_model_is_matched_in_full() {
    let ask = fraction("0.5", "1.0").label(KUBESHARE_MODEL, "NVIDIA-GeForce-GTX-1080").ask();
    assert_eq!(ask.models.only, [ModelPattern::Exact("NVIDIA-GeForce-GTX-1080".into())]);
    assert!(!ask.models.only[0].accepts("NVIDIA-GeForce-GTX-1080-Ti"));
    assert!(ask.models.only[0].accepts("NVIDIA GeForce GTX 1080"), "as the driver writes it");
    assert!(fraction("0.5", "1.0").label(KUBESHARE_MODEL, "").ask().models.only.is_empty());
}

#[test]
fn ks_29_the_request_is_the_guarantee_and_the_limit_the_cap() {
    let want = fraction("0.3", "1.0").want();
    assert_eq!((want.share, want.share_limit), (Share(300), Share(1000)));
}

#[test]
fn ks_33_a_pod_without_gpu_labels_is_ordinary_even_under_kubeshares_scheduler() {
    let pod = pod(&[]).spec("schedulerName", json!("kubeshare-scheduler"));
    assert_eq!(pod.read(), Reading::NotOurs);
    for zero in ["0.0", "0", "000"] {
        assert_eq!(fraction(zero, zero).read(), Reading::NotOurs, "{zero}");
    }
}

#[test]
fn a_limit_is_required_as_soon_as_anything_is_asked() {
    for (key, value) in [(KUBESHARE_REQUEST, "0.5"), (KUBESHARE_MEMORY, "1073741824")] {
        let mistakes = labelled(&[(key, value)]).mistakes();
        assert_eq!(wrong_keys(&mistakes), [KUBESHARE_LIMIT]);
        assert_eq!(mistakes[0].problem, "is missing");
    }
}

#[test]
fn a_limit_alone_guarantees_nothing_and_uses_what_is_left() {
    let want = labelled(&[(KUBESHARE_LIMIT, "0.5")]).want();
    let expected =
        DeviceAsk { share_limit: Share(500), memory_limit: Some(MemoryAsk::Nothing), ..DeviceAsk::default() };
    assert_eq!(want, expected);
    let above_one = labelled(&[(KUBESHARE_LIMIT, "3")]).want();
    assert_eq!((above_one.count, above_one.share_limit), (1, Share(1000)), "a shared pod, its limit never reached");
}

#[test]
fn a_request_of_exactly_one_is_shared_not_exclusive() {
    let want = fraction("1.0", "1.0").want();
    assert_eq!((want.share, want.memory, want.exclusive), (Share(1000), MemoryAsk::Part(Share(1000)), false));
}

#[test]
fn numbers_that_are_no_plain_decimals_are_refused() {
    for text in [".5", "0.", "1.", "1.5", "1e1", "", "-1", "half"] {
        let mistakes = fraction("0.5", text).mistakes();
        assert_eq!(wrong_keys(&mistakes), [KUBESHARE_LIMIT], "{text}");
    }
}

#[test]
fn both_spellings_of_the_group_are_read_and_may_not_differ() {
    let grouped =
        |labels: &[(&str, &str)]| labels.iter().fold(fraction("0.5", "1.0"), |pod, (key, value)| pod.label(key, value));
    let readme = grouped(&[(KUBESHARE_POD_GROUP, "a"), (KUBESHARE_HEADCOUNT, "5"), (KUBESHARE_THRESHOLD, "0.2")]);
    assert_eq!(readme.ask().gang, Some(Gang { name: "a".into(), size: 5, min: 1 }));
    let both = grouped(&[(KUBESHARE_POD_GROUP, "a"), (KUBESHARE_GROUP, "b")]);
    assert_eq!(wrong_keys(&both.mistakes()), [KUBESHARE_POD_GROUP]);
    let least = grouped(&[(KUBESHARE_GROUP, "a"), (KUBESHARE_MIN_AVAILABLE, "3")]);
    assert_eq!(least.ask().gang, Some(Gang { name: "a".into(), size: 3, min: 3 }));
    let name_only = grouped(&[(KUBESHARE_GROUP, "a")]);
    assert_eq!(name_only.ask().gang, Some(Gang { name: "a".into(), size: 1, min: 0 }), "together, but nobody waits");
}

#[test]
fn groups_that_contradict_themselves_are_refused() {
    let grouped = |labels: &[(&str, &str)]| {
        labels
            .iter()
            .fold(fraction("0.5", "1.0").label(KUBESHARE_GROUP, "a"), |pod, (key, value)| pod.label(key, value))
            .mistakes()
    };
    for (labels, key) in [
        (
            vec![(KUBESHARE_HEADCOUNT, "5"), (KUBESHARE_THRESHOLD, "0.2"), (KUBESHARE_MIN_AVAILABLE, "3")],
            KUBESHARE_MIN_AVAILABLE,
        ),
        (vec![(KUBESHARE_HEADCOUNT, "2"), (KUBESHARE_MIN_AVAILABLE, "3")], KUBESHARE_MIN_AVAILABLE),
        (vec![(KUBESHARE_HEADCOUNT, "0")], KUBESHARE_HEADCOUNT),
        (vec![(KUBESHARE_HEADCOUNT, "many")], KUBESHARE_HEADCOUNT),
        (vec![(KUBESHARE_THRESHOLD, "0")], KUBESHARE_THRESHOLD),
        (vec![(KUBESHARE_THRESHOLD, "half")], KUBESHARE_THRESHOLD),
        (vec![(KUBESHARE_MIN_AVAILABLE, "-1")], KUBESHARE_MIN_AVAILABLE),
        (vec![(KUBESHARE_HEADCOUNT, "4000000000"), (KUBESHARE_THRESHOLD, "4000000000")], KUBESHARE_THRESHOLD),
    ] {
        assert_eq!(wrong_keys(&grouped(&labels)), [key], "{labels:?}");
    }
}

#[test]
fn every_container_sees_the_device_and_it_is_booked_once() {
    let ask = bare()
        .init("prepare", &[])
        .container("a", &[])
        .container("b", &[])
        .label(KUBESHARE_REQUEST, "0.5")
        .label(KUBESHARE_LIMIT, "0.8")
        .ask();
    let names: Vec<&str> = ask.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(ask.topology, Topology::SameDevice);
    let onlooker = &ask.containers[1].wants[0];
    assert_eq!((onlooker.memory, onlooker.share, onlooker.share_limit), (MemoryAsk::Nothing, Share(0), Share(800)));
    assert_eq!(onlooker.memory_limit, Some(MemoryAsk::Part(Share(500))));
}

#[test]
fn whole_gpus_are_exclusive_also_in_a_pod_of_several_containers() {
    let pod = bare().container("a", &[]).container("b", &[]).container("c", &[]);
    let ask = pod.label(KUBESHARE_REQUEST, "2").label(KUBESHARE_LIMIT, "2").ask();
    assert_eq!(ask.topology, Topology::SameDevice);
    assert_eq!(ask.containers[0].wants, [DeviceAsk::whole(2)]);
    for onlooker in &ask.containers[1..] {
        let want = &onlooker.wants[0];
        assert_eq!((want.count, want.memory, want.share), (2, MemoryAsk::Nothing, Share(0)), "booked once");
        assert!(want.exclusive, "and held by the pod");
    }
}

#[test]
fn a_slip_in_a_label_is_noticed_and_a_stranger_is_left_alone() {
    let mistakes = fraction("0.5", "1.0").label("sharedgpu/gpu_modle", "x").mistakes();
    assert!(mistakes[0].mend.contains(KUBESHARE_MODEL), "{}", mistakes[0]);
    assert_eq!(fraction("0.5", "1.0").label("sharedgpu/team", "x").ask().containers.len(), 1);
}

#[test]
fn labels_that_kubeshare_itself_wrote_as_annotations_are_no_slips() {
    for key in [KUBESHARE_UUID, KUBESHARE_CELL_ID, KUBESHARE_PORT, "sharedgpu/x", "sharedgpu/gpu_count"] {
        assert_eq!(fraction("0.5", "1.0").label(key, "x").ask().containers.len(), 1, "{key}");
    }
}

#[test]
fn three_pods_of_a_third_share_a_card_and_three_of_more_do_not() {
    let booked = |request: &str| fraction(request, "1.0").want().share;
    assert_eq!((booked("0.3333"), booked("0.3334"), booked("0.3335")), (Share(333), Share(334), Share(334)));
    let exact = fraction("0.3335", "0.3335").want();
    assert_eq!((exact.share, exact.share_limit), (Share(334), Share(334)), "a limit is never below what is booked");
}

#[test]
fn a_threshold_may_be_written_as_a_float() {
    let min = |threshold: &str| {
        let grouped = fraction("0.5", "1.0").label(KUBESHARE_GROUP, "a").label(KUBESHARE_HEADCOUNT, "4");
        grouped.label(KUBESHARE_THRESHOLD, threshold).ask().gang.unwrap().min
    };
    assert_eq!((min("1e0"), min("5e-1"), min(".5")), (4, 2, 2));
}

#[test]
fn a_label_that_asks_for_nothing_does_not_silence_annotations_of_1_0() {
    let sharepod = pod(&[])
        .annotation(KUBESHARE1_REQUEST, ".4")
        .annotation(KUBESHARE1_LIMIT, "1.")
        .annotation(KUBESHARE1_MEMORY, "1000")
        .label("sharedgpu/team", "x");
    assert_eq!(sharepod.want().share, Share(400));
    assert_eq!(sharepod.ask().class, None, "placed by best fit, and not opportunistic");
}

#[test]
fn all_of_a_pods_mistakes_are_named() {
    let mistakes = labelled(&[
        (KUBESHARE_REQUEST, "half"),
        (KUBESHARE_LIMIT, "1.5"),
        (KUBESHARE_MEMORY, "1Gi"),
        (KUBESHARE_PRIORITY, "high"),
        (KUBESHARE_GROUP, "a"),
        (KUBESHARE_HEADCOUNT, "x"),
        (KUBESHARE_THRESHOLD, "y"),
    ])
    .mistakes();
    let mut keys = wrong_keys(&mistakes);
    keys.sort_unstable();
    let mut expected = [
        KUBESHARE_REQUEST,
        KUBESHARE_LIMIT,
        KUBESHARE_MEMORY,
        KUBESHARE_PRIORITY,
        KUBESHARE_HEADCOUNT,
        KUBESHARE_THRESHOLD,
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn a_sharepod_of_kubeshare_1_is_read_from_its_annotations() {
    let mut sharepod = pod(&[])
        .annotation(KUBESHARE1_REQUEST, "0.4")
        .annotation(KUBESHARE1_LIMIT, "1.0")
        .annotation(KUBESHARE1_MEMORY, "3145728000");
    sharepod.0["kind"] = "SharePod".into();
    let want = sharepod.want();
    assert_eq!(
        (want.share, want.share_limit, want.memory),
        (Share(400), Share(1000), MemoryAsk::Bytes(Bytes(3_145_728_000)))
    );
    let broken = pod(&[]).annotation(KUBESHARE1_REQUEST, "2").annotation(KUBESHARE1_GPU_ID, "abcde").mistakes();
    let mut keys = wrong_keys(&broken);
    keys.sort_unstable();
    assert_eq!(keys, [KUBESHARE1_GPU_ID, KUBESHARE1_LIMIT, KUBESHARE1_MEMORY, KUBESHARE1_REQUEST]);
}

use std::collections::BTreeSet;

use divvy_core::ask::{DeviceAsk, Dialect, MemoryAsk, Role};
use divvy_core::keys::*;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::{DialectConfig, PodManifest, Reading, VcudaFlavour, parse};
use serde_json::json;

use crate::support::{Pod, bare, pod, wrong_keys};

fn vcuda(core: &str, memory: &str) -> Pod {
    pod(&[(VCUDA_CORE, core), (VCUDA_MEMORY, memory)])
}

#[test]
fn gs_02_half_a_card_is_admitted_and_its_annotation_set() {
    let pod = vcuda("50", "15");
    let expected = DeviceAsk {
        memory: MemoryAsk::Bytes(Bytes::mib(15 * 256)),
        share: Share(500),
        share_limit: Share(500),
        ..DeviceAsk::default()
    };
    assert_eq!(pod.want(), expected);
    assert_eq!(pod.ask().dialect, Dialect::GpuManager);
    assert_eq!(pod.hints().annotations, [(VCUDA_CORE_LIMIT.to_owned(), "50".to_owned())].into());
}

#[test]
fn gs_06_cores_are_1_to_99_or_a_multiple_of_100() {
    for malformed in ["0", "101", "150", "250"] {
        let mistakes = vcuda(malformed, "15").mistakes();
        assert_eq!(wrong_keys(&mistakes), [VCUDA_CORE], "{malformed}");
    }
    for fine in ["1", "99", "100", "200"] {
        assert!(matches!(vcuda(fine, "15").read(), Reading::Ask(..)), "{fine}");
    }
}

#[test]
fn one_of_the_two_alone_is_denied_in_gpusharings_words() {
    for alone in [pod(&[(VCUDA_CORE, "50")]), pod(&[(VCUDA_MEMORY, "15")]), pod(&[(VCUDA_CORE, "100")])] {
        let mistakes = alone.mistakes();
        assert_eq!(mistakes.len(), 1);
        assert_eq!(mistakes[0].problem, "Must supply both tencent.com/vcuda-core AND tencent.com/vcuda-memory");
    }
}

#[test]
fn plain_gpu_manager_gives_whole_cards_by_core_alone() {
    let config = DialectConfig { vcuda: VcudaFlavour::GpuManager, ..DialectConfig::default() };
    assert_eq!(crate::support::only_want(&pod(&[(VCUDA_CORE, "200")]).ask_with(&config)), DeviceAsk::whole(2));
    assert_eq!(pod(&[(VCUDA_CORE, "50")]).mistakes_with(&config).len(), 1, "but a part of a card needs memory");
}

#[test]
fn gs_13_annotations_of_the_user_stay() {
    let pod = vcuda("50", "15").annotation("a", "b");
    let hints = pod.hints();
    assert_eq!(
        hints.annotations.keys().collect::<Vec<_>>(),
        [VCUDA_CORE_LIMIT],
        "one is added, none is named that exists"
    );
}

#[test]
fn gs_14_a_cpu_container_in_front_hides_nothing() {
    let pod = bare()
        .container("cpu", &[])
        .with("resources", json!(null))
        .container("gpu", &[(VCUDA_CORE, "50"), (VCUDA_MEMORY, "15")]);
    let ask = pod.ask();
    assert_eq!(ask.containers.len(), 1);
    assert_eq!(ask.containers[0].name.as_str(), "gpu");
    let broken = bare().container("cpu", &[]).container("gpu", &[(VCUDA_CORE, "150"), (VCUDA_MEMORY, "15")]);
    assert_eq!(wrong_keys(&broken.mistakes()), [VCUDA_CORE]);
}

#[test]
fn gs_18_deployments_and_jobs_pass_untouched() {
    let template = vcuda("150", "15").0;
    for kind in ["Deployment", "Job"] {
        let object = json!({ "kind": kind, "metadata": {}, "spec": { "template": template } });
        assert_eq!(parse(&PodManifest::new(&object), &DialectConfig::default()), Reading::NotOurs);
    }
}

#[test]
fn tk_06_a_card_and_a_half_is_refused_before_scheduling() {
    let mistakes = vcuda("150", "4").mistakes();
    assert_eq!(mistakes[0].problem, "cores are greater than 100, must be multiple of 100");
}

#[test]
fn tk_03_memory_beside_whole_cards_is_not_looked_at() {
    assert_eq!(vcuda("200", "10").want(), DeviceAsk::whole(2));
}

#[test]
fn tk_16_an_annotation_softens_the_limit() {
    let want = vcuda("30", "30").annotation(VCUDA_CORE_LIMIT, "50").want();
    assert_eq!((want.share, want.share_limit), (Share(300), Share(500)));
    assert_eq!(want.memory, MemoryAsk::Bytes(Bytes(8_053_063_680)));
    let clamped = vcuda("30", "30").annotation(VCUDA_CORE_LIMIT, "250").want();
    assert_eq!(clamped.share_limit, Share(1000));
}

#[test]
fn tk_17_whole_cards_have_no_limit_to_soften() {
    assert_eq!(vcuda("200", "0").annotation(VCUDA_CORE_LIMIT, "50").want(), DeviceAsk::whole(2));
}

#[test]
fn tk_18_a_limit_that_is_no_number_is_refused_before_the_container_starts() {
    let cases = [
        ("abc", "is not a number"),
        ("", "is not a number"),
        ("-3", "is negative"),
        ("-99999999999999999999", "is negative"),
    ];
    for (text, problem) in cases {
        let mistakes = vcuda("30", "30").annotation(VCUDA_CORE_LIMIT, text).mistakes();
        assert_eq!(wrong_keys(&mistakes), [VCUDA_CORE_LIMIT], "{text}");
        assert_eq!(mistakes[0].problem, problem, "{text}");
    }
}

#[test]
fn a_limit_speaks_for_every_container_and_takes_nothing_from_one_that_has_more() {
    let ask = bare()
        .annotation(VCUDA_CORE_LIMIT, "40")
        .container("small", &[(VCUDA_CORE, "20"), (VCUDA_MEMORY, "1")])
        .container("large", &[(VCUDA_CORE, "60"), (VCUDA_MEMORY, "1")])
        .ask();
    let limits: Vec<_> = ask.containers.iter().map(|c| (c.wants[0].share, c.wants[0].share_limit)).collect();
    assert_eq!(limits, [(Share(200), Share(400)), (Share(600), Share(600))]);
}

#[test]
fn a_limit_of_a_card_or_more_is_the_whole_card_however_large_it_is() {
    for text in ["100", "250", "4294967296", "99999999999999999999"] {
        assert_eq!(vcuda("30", "30").annotation(VCUDA_CORE_LIMIT, text).want().share_limit, Share::WHOLE, "{text}");
    }
}

#[test]
fn a_limit_is_not_read_where_there_is_nothing_to_limit() {
    assert_eq!(vcuda("200", "1").annotation(VCUDA_CORE_LIMIT, "abc").want(), DeviceAsk::whole(2));
    assert_eq!(vcuda("0", "0").annotation(VCUDA_CORE_LIMIT, "abc").read(), Reading::NotOurs);
}

#[test]
fn everything_that_is_wrong_with_a_container_is_said_at_once() {
    let wrong = |pod: Pod| wrong_keys(&pod.mistakes()).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let all = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
    for core in ["150", "abc", "-1"] {
        let alone = pod(&[(VCUDA_CORE, core)]).annotation(VCUDA_CORE_LIMIT, "x");
        assert_eq!(wrong(alone), all(&[VCUDA_CORE, VCUDA_MEMORY, VCUDA_CORE_LIMIT]), "{core} alone");
    }
    for (core, memory) in [("150", "abc"), ("150", "99999999999999"), ("0", "99999999999999"), ("abc", "1.5")] {
        assert_eq!(wrong(vcuda(core, memory)), all(&[VCUDA_CORE, VCUDA_MEMORY]), "{core} and {memory}");
    }
    assert_eq!(wrong(pod(&[(VCUDA_MEMORY, "abc")])), all(&[VCUDA_CORE, VCUDA_MEMORY]));
}

#[test]
fn plain_gpu_manager_misses_no_memory_beside_what_may_become_whole_cards() {
    let config = DialectConfig { vcuda: VcudaFlavour::GpuManager, ..DialectConfig::default() };
    for core in ["150", "abc"] {
        assert_eq!(wrong_keys(&pod(&[(VCUDA_CORE, core)]).mistakes_with(&config)), [VCUDA_CORE], "{core}");
    }
}

#[test]
fn more_cards_than_a_node_has_are_refused_in_their_own_words() {
    assert_eq!(vcuda("102400", "1").want(), DeviceAsk::whole(1024));
    for core in ["102500", "99999999950"] {
        assert_eq!(vcuda(core, "1").mistakes()[0].problem, "is more cards than any node has", "{core}");
    }
}

#[test]
fn ways_around_a_grant_are_named_beside_what_is_wrong_with_the_amounts() {
    let trick = |pod: Pod| pod.with("securityContext", json!({ "privileged": true }));
    let pod = trick(bare().container("right", &[(VCUDA_CORE, "50"), (VCUDA_MEMORY, "1")]));
    let pod = trick(pod.container("wrong", &[(VCUDA_CORE, "150"), (VCUDA_MEMORY, "1")]));
    let pod = trick(pod.container("none", &[])).spec("nodeName", json!("n1"));
    assert_eq!(
        wrong_keys(&pod.mistakes()),
        [
            VCUDA_CORE,
            "spec.nodeName",
            "container right: securityContext.privileged",
            "container wrong: securityContext.privileged"
        ]
    );
}

#[test]
fn the_annotation_is_set_only_where_one_value_fits_all_containers() {
    let pod = |second| {
        bare()
            .container("a", &[(VCUDA_CORE, "50"), (VCUDA_MEMORY, "1")])
            .container("b", &[(VCUDA_CORE, second), (VCUDA_MEMORY, "1")])
    };
    assert_eq!(pod("50").hints().annotations.len(), 1);
    assert!(pod("30").hints().annotations.is_empty());
    assert_eq!(pod("30").ask().containers[1].wants[0].share_limit, Share(300), "the hard limit holds without it");
}

#[test]
fn admission_twice_reads_the_same() {
    let once = vcuda("50", "15");
    let (ask, hints) = crate::support::ask(once.read());
    let twice = hints.annotations.iter().fold(once, |pod, (key, value)| pod.annotation(key, value));
    assert_eq!(twice.ask(), ask);
}

#[test]
fn a_part_without_memory_is_refused_and_nothing_at_all_is_nothing() {
    assert_eq!(wrong_keys(&vcuda("50", "0").mistakes()), [VCUDA_MEMORY]);
    assert_eq!(vcuda("0", "0").read(), Reading::NotOurs);
    assert_eq!(wrong_keys(&vcuda("50", "99999999999999").mistakes()), [VCUDA_MEMORY]);
}

#[test]
fn init_containers_are_looked_at_too() {
    let ask = bare()
        .init("warm", &[(VCUDA_CORE, "10"), (VCUDA_MEMORY, "1")])
        .container("main", &[(VCUDA_CORE, "100"), (VCUDA_MEMORY, "1")])
        .ask();
    assert_eq!(ask.containers.iter().map(|c| c.role).collect::<Vec<_>>(), [Role::Init, Role::Main]);
}

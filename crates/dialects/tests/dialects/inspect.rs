//! What `kubectl inspect gpushare` prints.

use divvy_core::device::MemoryUnit;
use divvy_dialects::inspect::{NodeView, PodView, details, summary};
use expect_test::expect;

fn node(name: &str, cards: &[u64], pods: &[(&str, &[u64], u64)]) -> NodeView {
    let pod = |(name, held, pending): &(&str, &[u64], u64)| PodView {
        namespace: "default".into(),
        name: (*name).into(),
        held: held.to_vec(),
        pending: *pending,
    };
    NodeView {
        name: name.into(),
        address: Some("192.168.0.7".into()),
        cards: cards.to_vec(),
        pods: pods.iter().map(pod).collect(),
    }
}

#[test]
fn al_18_the_summary_has_a_line_for_each_node_and_one_for_the_cluster() {
    let nodes = [node("n2", &[15], &[("c", &[3], 0)]), node("n1", &[15], &[("a", &[2], 0), ("b", &[4], 0)])];
    expect![[r#"
        NAME  IPADDRESS    GPU0(Allocated/Total)  GPU Memory(GiB)
        n1    192.168.0.7  6/15                   6/15
        n2    192.168.0.7  3/15                   3/15
        ---------------------------------------------
        Allocated/Total GPU Memory In Cluster:
        9/30 (30%)
    "#]]
    .assert_eq(&summary(&nodes, MemoryUnit::GiB));
}

#[test]
fn al_19_what_is_bound_to_no_card_has_a_column_of_its_own() {
    let mut second = node("n2", &[15], &[("lost", &[0], 3)]);
    second.address = None;
    let nodes = [node("n1", &[16276, 16276], &[("a", &[8138, 0], 0)]), second];
    expect![[r#"
        NAME  IPADDRESS    GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(MiB)
        n1    192.168.0.7  8138/16276             0/16276                0                   8138/32552
        n2    unknown      0/15                   0/0                    3                   3/15
        -------------------------------------------------------------------
        Allocated/Total GPU Memory In Cluster:
        8141/32567 (24%)
    "#]]
    .assert_eq(&summary(&nodes, MemoryUnit::MiB));
}

#[test]
fn details_name_every_pod() {
    let nodes = [
        node("n1", &[15, 15], &[("binpack-1-1", &[3, 0], 0), ("binpack-1-0", &[3, 0], 0), ("late", &[0, 0], 2)]),
        node("n2", &[15], &[]),
    ];
    expect![[r#"

        NAME:       n1
        IPADDRESS:  192.168.0.7

        NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  Pending(Allocated)
        binpack-1-0  default    3                0                0
        binpack-1-1  default    3                0                0
        late         default    0                0                2
        Allocated :  8 (26%)
        Total :      30
        ------------------------------------------------------------------------------------

        NAME:       n2
        IPADDRESS:  192.168.0.7

        NAME         NAMESPACE  GPU0(Allocated)
        Allocated :  0 (0%)
        Total :      15
        ------------------------------------------------------------------------------------


        Allocated/Total GPU Memory In Cluster:  8/45 (17%)
    "#]]
    .assert_eq(&details(&nodes));
}

#[test]
fn a_cluster_without_nodes_has_a_summary_too() {
    assert!(summary(&[], MemoryUnit::GiB).ends_with("0/0 (0%)\n"));
    assert!(details(&[]).ends_with("0/0 (0%)\n"));
}

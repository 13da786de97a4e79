use super::*;

#[test]
fn a_count_and_a_model_make_a_machine() {
    let spec = Spec::parse("8xH200").unwrap();
    assert_eq!(spec.cards.len(), 8);
    assert_eq!(spec.cards[0].memory, 143_771 << 20);
    assert_eq!((spec.cards[3].numa, spec.cards[4].numa), (0, 1));
    assert_eq!(spec.links_between(0, 7), 18);
    assert_eq!((spec.common_ancestor(0, 1), spec.common_ancestor(0, 7)), (40, 50));
    let uuids: std::collections::HashSet<_> = spec.cards.iter().map(|c| &c.uuid).collect();
    assert_eq!(uuids.len(), 8);
    assert!(uuids.iter().all(|u| u.len() == 40 && u.starts_with("GPU-")));
}

#[test]
fn cards_are_told_apart_by_their_settings_and_machines_by_their_seed() {
    let spec =
        Spec::parse("H200 numa=1 pci=0000:3b:00.0 switch=4; T4 memory=8GiB # old\ndriver=570.10 cuda=12.8 seed=b")
            .unwrap();
    assert_eq!((spec.driver.as_str(), spec.cuda), ("570.10", 12080));
    assert_eq!(spec.cards[0].bus_id(), "00000000:3B:00.0");
    assert_eq!((spec.cards[1].memory, spec.cards[1].numa), (8 << 30, 1));
    assert_ne!(spec.cards[0].uuid, Spec::parse("H200").unwrap().cards[0].uuid);
}

#[test]
fn mig_instances_come_by_profile_and_fit_the_card() {
    let spec = Spec::parse("A100 mig=3g.40gb+2*2g.20gb").unwrap();
    let mig = spec.cards[0].mig.as_ref().unwrap();
    assert_eq!(mig.iter().map(|i| i.profile.name).collect::<Vec<_>>(), ["3g.40gb", "2g.20gb", "2g.20gb"]);
    assert!(mig.iter().all(|i| i.uuid.starts_with("MIG-")));
    assert!(Spec::parse("A100 mig=2*4g.40gb").unwrap_err().to_string().contains("8 compute and 8 memory slices"));
    assert!(Spec::parse("T4 mig=1g.5gb").unwrap_err().to_string().contains("has no MIG"));
}

#[test]
fn every_mistake_is_named_at_once() {
    let told = Spec::parse("3xH300; H200 memory=lots pci=here; numa=1; colour=red").unwrap_err();
    assert_eq!(told.0.len(), 5, "{told}");
    for part in ["H300", "lots", "here", "must follow a card", "colour"] {
        assert!(told.to_string().contains(part), "{told}");
    }
    assert!(Spec::parse("").unwrap_err().to_string().contains("no cards"));
    assert!(Spec::parse("17xT4").unwrap_err().to_string().contains("1 to 16"));
}

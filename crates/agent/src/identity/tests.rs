use super::*;

fn ids(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn entry(pod: &str, container: &str, list: &[&str]) -> Entry {
    Entry { pod: pod.into(), container: container.into(), ids: ids(list) }
}

fn listed(pod: &str, container: &str, list: &[&str]) -> Listed {
    Listed { pod: PodKey::new("ns", pod), container: container.into(), ids: ids(list) }
}

fn member(name: &str, role: Role, slots: usize) -> Member {
    Member { name: name.into(), role, slots }
}

fn done(names: &[&str]) -> Seen {
    Seen { done: names.iter().map(|n| (*n).into()).collect(), main_made: false }
}

#[test]
fn an_init_container_with_the_main_ones_slots_is_told_from_it_by_what_has_run() {
    let records = [entry("u1", "prepare", &["00"]), entry("u1", "train", &["00"]), entry("u2", "train", &["01"])];
    let members = [member("prepare", Role::Init, 1), member("train", Role::Main, 1)];
    let owner = owner(&ids(&["00"]), Some(&records), &[]).unwrap();
    let which = |seen: &Seen| which(&owner, &members, 1, seen).unwrap();
    assert_eq!(which(&Seen::default()).as_str(), "prepare");
    assert_eq!(which(&done(&["prepare"])).as_str(), "train");
    // The init container's remains were swept away, but a main container was there: it is a restart of that one.
    assert_eq!(which(&Seen { done: BTreeSet::new(), main_made: true }).as_str(), "train");
}

#[test]
fn init_containers_start_in_their_order() {
    let records = [entry("u", "a", &["00"]), entry("u", "b", &["00"]), entry("u", "main", &["00"])];
    let members = [member("a", Role::Init, 1), member("b", Role::Init, 1), member("main", Role::Main, 1)];
    let owner = owner(&ids(&["00"]), Some(&records), &[]).unwrap();
    for (seen, expected) in [(done(&[]), "a"), (done(&["a"]), "b"), (done(&["a", "b"]), "main")] {
        assert_eq!(which(&owner, &members, 1, &seen).unwrap().as_str(), expected);
    }
}

#[test]
fn an_init_container_with_more_slots_than_the_main_one_is_found_too() {
    let members = [member("prepare", Role::Init, 2), member("train", Role::Main, 1)];
    let records = [entry("u", "prepare", &["00", "01"]), entry("u", "train", &["01"])];
    let exact = owner(&ids(&["00", "01"]), Some(&records), &[]).unwrap();
    assert_eq!(which(&exact, &members, 2, &Seen::default()).unwrap().as_str(), "prepare");
    let api = [listed("p", "train", &["01"])];
    let named = owner(&ids(&["00", "01"]), None, &api).unwrap();
    assert_eq!(which(&named, &members, 2, &Seen::default()).unwrap().as_str(), "prepare");
}

#[test]
fn without_the_checkpoint_the_api_names_pod_and_container() {
    let api = [listed("p", "a", &["00", "04"]), listed("p", "b", &["02"]), listed("q", "a", &["03"])];
    let members = [member("early", Role::Init, 1), member("a", Role::Main, 2), member("b", Role::Main, 1)];
    let owner = owner(&ids(&["02"]), None, &api).unwrap();
    assert_eq!(owner, Owner::Named(PodKey::new("ns", "p"), vec!["b".into()]));
    assert_eq!(which(&owner, &members, 1, &done(&["early"])).unwrap().as_str(), "b");
    assert_eq!(which(&owner, &members, 1, &Seen::default()).unwrap().as_str(), "early");
}

#[test]
fn ids_of_nobody_and_of_two_pods_are_refused() {
    let api = [listed("p", "a", &["00"]), listed("q", "a", &["01"])];
    assert!(matches!(owner(&ids(&["07"]), None, &api), Err(Unclear::Nobody(_))));
    assert!(matches!(owner(&ids(&["00", "01"]), None, &api), Err(Unclear::Several(_))));
    assert!(matches!(owner(&ids(&["00"]), Some(&[]), &api), Err(Unclear::Nobody(_))));
    let twice = [entry("u1", "a", &["00"]), entry("u2", "a", &["00"])];
    assert!(matches!(owner(&ids(&["00"]), Some(&twice), &[]), Err(Unclear::Several(_))));
}

#[test]
fn a_sidecar_is_itself_also_when_it_restarts() {
    let records = [entry("u", "proxy", &["00"]), entry("u", "main", &["01"])];
    let members = [member("proxy", Role::Sidecar, 1), member("main", Role::Main, 1)];
    let owner = owner(&ids(&["00"]), Some(&records), &[]).unwrap();
    let seen = Seen { done: BTreeSet::new(), main_made: true };
    assert_eq!(which(&owner, &members, 1, &seen).unwrap().as_str(), "proxy");
}

#[test]
fn the_kubelets_checkpoint_is_read_and_an_unknown_shape_is_left_alone() {
    let text = r#"{"Data":{"PodDeviceEntries":[
        {"PodUID":"u1","ContainerName":"c","ResourceName":"divvy.dev/slot","DeviceIDs":{"-1":["s001","s000"]},"AllocResp":"Eg=="},
        {"PodUID":"u1","ContainerName":"c","ResourceName":"other/thing","DeviceIDs":{"-1":["x"]},"AllocResp":""}],
        "RegisteredDevices":{"divvy.dev/slot":["s000"]}},"Checksum":1}"#;
    assert_eq!(read_checkpoint(text, divvy_core::keys::SLOT), Some(vec![entry("u1", "c", &["s000", "s001"])]));
    let empty = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#;
    assert_eq!(read_checkpoint(empty, divvy_core::keys::SLOT), Some(vec![]));
    for odd in ["", "[]", "{}", r#"{"Data":{"PodDeviceEntries":[{"PodUID":1}]}}"#] {
        assert_eq!(read_checkpoint(odd, divvy_core::keys::SLOT), None, "{odd}");
    }
}

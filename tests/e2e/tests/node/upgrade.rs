//! Another version of the agent and of its library, with containers running.

use std::fs;

use divvy_e2e::{Kubectl, eventually, own};
use serde_json::{Value, json};

use divvy_e2e::site::{CARDS, CUDA, SOON, Site, pod, site, slice};

fn cuda(name: &str) -> Value {
    let mut pod = pod(name, &[("main", "main", vec![slice(CARDS[0], 1024, 300)], "sleep 3600")]);
    pod["spec"]["containers"][0]["image"] = json!(CUDA);
    pod
}

/// The versions of the library on the node.
fn versions(site: &Site) -> usize {
    fs::read_dir(site.on_node("/var/lib/divvy/lib")).unwrap().count()
}

/// A program in the pod's container is held to its gibibyte.
fn is_held(site: &Site, kubectl: &Kubectl, pod: &str) {
    let said = site.tenant(kubectl, pod, "ctx 0\nalloc 1073741825\nalloc 1048576\nquit\n");
    assert_eq!(said[1], "error 2", "{pod}: {said:?}");
    assert!(said[2].starts_with("ok "), "{pod}: {said:?}");
}

#[test]
fn fp_27_containers_keep_the_library_they_started_with_through_upgrade_and_downgrade_and_old_ones_are_swept_up() {
    let mut site = site();
    let kubectl = site.namespace();
    kubectl.create(&cuda("old").to_string()).unwrap();
    kubectl.wait_phase("old", "Running", SOON).unwrap();
    // Another build of the library: the same code under another hash.
    let mut bytes = fs::read(own::library().unwrap()).unwrap();
    bytes.extend_from_slice(b"another build");
    fs::write(site.on_node("/var/lib/divvy-next.so"), bytes).unwrap();
    site.flags(&["--library=/var/lib/divvy-next.so"]);
    kubectl.create(&cuda("new").to_string()).unwrap();
    kubectl.wait_phase("new", "Running", SOON).unwrap();
    assert!(versions(&site) >= 2, "both versions are there");
    is_held(&site, &kubectl, "old");
    is_held(&site, &kubectl, "new");
    // Back again: what runs with the newer one runs on.
    site.flags(&[]);
    kubectl.create(&cuda("again").to_string()).unwrap();
    kubectl.wait_phase("again", "Running", SOON).unwrap();
    for pod in ["old", "new", "again"] {
        is_held(&site, &kubectl, pod);
    }
    kubectl.say(&["delete", "pod", "new", "--wait=false"]).unwrap();
    eventually("the version that nobody has is gone", SOON, || {
        anyhow::ensure!(versions(&site) == 1, "{} versions", versions(&site));
        Ok(())
    })
    .unwrap();
    for pod in ["old", "again"] {
        is_held(&site, &kubectl, pod);
        assert_eq!(kubectl.get("pod", pod).unwrap()["status"]["containerStatuses"][0]["restartCount"], 0);
    }
    kubectl.say(&["delete", "pods", "--all", "--wait=false"]).unwrap();
    site.settled();
    eventually("pages and CDI specs are gone", SOON, || {
        let left = |path: &str| fs::read_dir(site.on_node(path)).map_or(0, Iterator::count);
        let (pages, specs) = (left("/run/divvy/containers"), left("/run/cdi"));
        anyhow::ensure!(pages == 0 && specs == 0, "{pages} folders, {specs} specs");
        Ok(())
    })
    .unwrap();
}

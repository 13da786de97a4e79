//! A namespace per test, so that tests share a cluster without meeting.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;

/// A fresh namespace and kubectl in it. When its test fails it tells the story: pods, events and what every program said last.
#[derive(Debug)]
pub struct Namespace<'a> {
    name: String,
    kubectl: Kubectl,
    cluster: &'a Cluster,
}

impl<'a> Namespace<'a> {
    pub(crate) fn create(cluster: &'a Cluster, hint: &str) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{hint}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster.admin().say(&["create", "namespace", &name])?;
        let kubectl = cluster.admin().in_namespace(&name);
        if cluster.control_plane().controller_manager.is_some() {
            // Without it pods are refused.
            kubectl.wait("serviceaccount", "default", Duration::from_secs(30), |_| true)?;
        }
        Ok(Self { name, kubectl, cluster })
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Deref for Namespace<'_> {
    type Target = Kubectl;

    fn deref(&self) -> &Kubectl {
        &self.kubectl
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("namespace {}:\n{}\n{}", self.name, self.kubectl.story(), self.cluster.report());
        }
        // Its pods should not run on beside the next tests; the cluster's end removes it in any case.
        let _ = self.kubectl.run(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}

//! The scripts that wire Divvy into a kubeadm cluster and undo it, with stand-ins for kubectl and helm that write down what they are told.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// As `kubeadm init` writes it.
const SCHEDULER: &str = "\
apiVersion: v1
kind: Pod
metadata:
  labels:
    component: kube-scheduler
    tier: control-plane
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
    - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
    - --bind-address=127.0.0.1
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=true
    image: registry.k8s.io/kube-scheduler:v1.36.3
    name: kube-scheduler
    volumeMounts:
    - mountPath: /etc/kubernetes/scheduler.conf
      name: kubeconfig
      readOnly: true
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/scheduler.conf
      type: FileOrCreate
    name: kubeconfig
status: {}
";

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.at("bin")).unwrap();
        fs::create_dir_all(machine.at("kubernetes/manifests")).unwrap();
        fs::write(machine.manifest(), SCHEDULER).unwrap();
        for tool in ["kubectl", "helm"] {
            let script = format!(
                "#!/bin/sh\necho \"{tool} $*\" >>{}\ncase \"$*\" in *clusterIP*) printf 10.96.7.7 ;; *secretName*) printf theirs ;; *'get secret theirs'*) printf shown ;; esac\n",
                machine.at("said").display()
            );
            let path = machine.at("bin").join(tool);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn manifest(&self) -> PathBuf {
        self.at("kubernetes/manifests/kube-scheduler.yaml")
    }

    fn run(&self, script: &str, words: &[&str]) -> Output {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubeadm").join(script);
        let output = Command::new("sh")
            .arg(path)
            .args(words)
            .env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display()))
            .env("KUBEADM_MANIFESTS", self.at("kubernetes/manifests"))
            .env("KUBEADM_KEPT", self.at("kubernetes/divvy-undo"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn said(&self) -> String {
        fs::read_to_string(self.at("said")).unwrap_or_default()
    }
}

#[test]
fn the_clusters_own_scheduler_is_wired_to_divvy_and_put_back_as_it_was() {
    let machine = Machine::new();
    machine.run("wire.sh", &["--extender", "--registry", "registry.example.com/gpu"]);
    let said = machine.said();
    assert!(said.contains("helm upgrade --install divvy"), "{said}");
    assert!(said.contains("--set image.registry=registry.example.com/gpu"), "{said}");
    assert!(said.contains("kubeScheduler.profile=default-scheduler"), "{said}");

    let config = machine.at("kubernetes/divvy-kube-scheduler.yaml");
    let settings: Value = serde_saphyr::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    let extender = &settings["extenders"][0];
    assert_eq!(extender["urlPrefix"], "https://10.96.7.7:8090/divvy");
    let shown = machine.at("kubernetes/divvy-extender");
    assert_eq!(extender["tlsConfig"]["serverName"], "divvy-extender.divvy-system.svc");
    for (field, file) in [("certFile", "tls.crt"), ("keyFile", "tls.key"), ("caFile", "ca.crt")] {
        assert_eq!(extender["tlsConfig"][field], shown.join(file).display().to_string());
        assert_eq!(fs::read_to_string(shown.join(file)).unwrap(), "shown");
        assert_eq!(fs::metadata(shown.join(file)).unwrap().permissions().mode() & 0o077, 0, "{file} is root's alone");
    }
    let wired: Value = serde_saphyr::from_str(&fs::read_to_string(machine.manifest()).unwrap()).unwrap();
    let command = wired["spec"]["containers"][0]["command"].as_array().unwrap();
    assert_eq!(command[1], format!("--config={}", config.display()));
    assert_eq!(command.len(), 7, "nothing else changed: {command:?}");
    assert_eq!(wired["spec"]["containers"][0]["volumeMounts"].as_array().unwrap().len(), 3);
    assert_eq!(wired["spec"]["volumes"][0]["hostPath"]["path"], config.display().to_string());
    assert_eq!(wired["spec"]["volumes"][1]["hostPath"]["path"], shown.display().to_string());

    // Twice is once.
    let once = fs::read_to_string(machine.manifest()).unwrap();
    machine.run("wire.sh", &["--extender"]);
    assert_eq!(fs::read_to_string(machine.manifest()).unwrap(), once);

    machine.run("undo.sh", &["--everything"]);
    assert_eq!(fs::read_to_string(machine.manifest()).unwrap(), SCHEDULER);
    assert!(!config.exists() && !shown.exists() && !machine.at("kubernetes/divvy-undo").exists());
    assert!(machine.said().contains("helm uninstall divvy"), "{}", machine.said());
}

#[test]
fn a_dry_run_changes_nothing() {
    let machine = Machine::new();
    let output = machine.run("wire.sh", &["--dry-run", "--extender"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("helm upgrade --install divvy"));
    machine.run("undo.sh", &["--dry-run"]);
    assert_eq!(fs::read_to_string(machine.manifest()).unwrap(), SCHEDULER);
    assert!(!machine.said().contains("helm "), "{}", machine.said());
}

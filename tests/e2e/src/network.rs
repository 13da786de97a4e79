//! Addresses of a cluster with nodes: a /16 of its own on a bridge of its own.
//!
//! | part | addresses |
//! |---|---|
//! | this machine, as the nodes see it | `10.N.0.1` |
//! | node i | `10.N.0.(10+i)` |
//! | pods of node i | `10.N.(10+i).0/24` |
//! | services; the API server listens on the first | `10.N.255.0/24` |
//!
//! The API server listens on its own service address, so pods reach it without a service proxy. This machine has routes to all
//! pods, so the API server reaches webhooks that run as pods (with endpoint routing on).

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{bail, ensure};

/// The addresses of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    second: u8,
}

impl Network {
    /// Takes a block that nobody uses. The bridge's name is the lock: the kernel lets only one be made.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let routes = ip(&["-4", "route", "show", "table", "all"])?;
        for second in 128..=254 {
            let network = Self { second };
            let used = routes.split_whitespace().any(|word| word.starts_with(&format!("10.{second}.")));
            if used || ip(&["link", "add", &network.bridge(), "type", "bridge"]).is_err() {
                continue;
            }
            ip(&["addr", "add", &format!("{}/24", network.host()), "dev", &network.bridge()])?;
            ip(&["addr", "add", &format!("{}/32", network.api_server()), "dev", &network.bridge()])?;
            ip(&["link", "set", &network.bridge(), "up"])?;
            return Ok(network);
        }
        bail!("no free block among 10.128.0.0/16 to 10.254.0.0/16, or no right to make a bridge")
    }

    /// The bridge on this machine.
    pub(crate) fn bridge(&self) -> String {
        format!("divvy{}", self.second)
    }

    /// This machine, as nodes and pods see it.
    pub(crate) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.second, 0, 1)
    }

    /// The API server: the first service address.
    pub(crate) fn api_server(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.second, 255, 1)
    }

    /// The range of service addresses.
    pub(crate) fn services(&self) -> String {
        format!("10.{}.255.0/24", self.second)
    }

    /// A node's address.
    pub(crate) fn node(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.second, 0, 10 + index)
    }

    /// The range of a node's pods.
    pub(crate) fn pods(&self, index: u8) -> String {
        format!("10.{}.{}.0/24", self.second, 10 + index)
    }

    /// Wires the network namespace of process `init` to the bridge.
    pub(crate) fn connect(&self, index: u8, init: u32) -> anyhow::Result<()> {
        let (outer, init) = (format!("{}n{index}", self.bridge()), init.to_string());
        ip(&["link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &init])?;
        ip(&["link", "set", &outer, "master", &self.bridge(), "up"])?;
        ip(&["route", "add", &self.pods(index), "via", &self.node(index).to_string()])?;
        let inside = |words: &[&str]| -> anyhow::Result<String> {
            let mut all = vec!["--target", &init, "--net", "ip"];
            all.extend(words);
            call("nsenter", &all)
        };
        inside(&["link", "set", "lo", "up"])?;
        inside(&["addr", "add", &format!("{}/24", self.node(index)), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &self.host().to_string()])?;
        Ok(())
    }

    /// Cuts a node off from everything, or joins it again.
    pub(crate) fn partition(&self, index: u8, cut: bool) -> anyhow::Result<()> {
        let outer = format!("{}n{index}", self.bridge());
        ip(&["link", "set", &outer, if cut { "down" } else { "up" }])?;
        if !cut {
            // The kernel drops routes over a link that goes down.
            ip(&["route", "replace", &self.pods(index), "via", &self.node(index).to_string()])?;
        }
        Ok(())
    }
}

fn ip(words: &[&str]) -> anyhow::Result<String> {
    call("ip", words)
}

fn call(program: &str, words: &[&str]) -> anyhow::Result<String> {
    let said = Command::new(program).args(words).output()?;
    let why = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{program} {}: {}", words.join(" "), why.trim());
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

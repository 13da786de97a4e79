//! KubeShare 1.0: annotations `kubeshare/*` of a SharePod (or of a pod made from one). Deprecated since 2021, but manifests exist.

use divvy_core::ask::{DeviceAsk, GpuAsk, MemoryAsk, Topology};
use divvy_core::keys;
use divvy_core::units::{Bytes, Share};

use super::decimal::Decimal;
use super::{DIALECT, spread_over_containers};
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::reading::{Draft, Spoken};

const AMOUNTS: [&str; 3] = [keys::KUBESHARE1_REQUEST, keys::KUBESHARE1_LIMIT, keys::KUBESHARE1_MEMORY];

/// Ways to steer a SharePod to a virtual GPU by name. There are no named virtual GPUs here.
const STEERING: [&str; 4] =
    [keys::KUBESHARE1_AFFINITY, keys::KUBESHARE1_ANTI_AFFINITY, keys::KUBESHARE1_EXCLUSION, keys::KUBESHARE1_GPU_ID];

/// If one of the three amounts is given, all have to be; and nothing above one GPU.
pub(super) fn read(pod: &PodManifest<'_>) -> Spoken {
    let filled = |key| pod.annotation(key).filter(|text| !text.is_empty());
    if !AMOUNTS.into_iter().any(|key| filled(key).is_some()) {
        return Spoken::Silent;
    }
    let mut mistakes = Vec::new();
    let mut part = |key| {
        let Some(text) = filled(key) else {
            mistakes.push(Mistake::at(
                DIALECT,
                Field::annotation(key),
                "is missing",
                "add it: gpu_request, gpu_limit and gpu_mem go together",
            ));
            return None;
        };
        let part = Decimal::read_float(&text).filter(|part| !part.is_above_one());
        if part.is_none() {
            mistakes.push(Mistake::about(
                DIALECT,
                Field::annotation(key),
                &text,
                "is not a part of a GPU",
                "write a decimal from 0.0 to 1.0",
            ));
        }
        part
    };
    let (request, limit) = (part(keys::KUBESHARE1_REQUEST), part(keys::KUBESHARE1_LIMIT));
    let field = || Field::annotation(keys::KUBESHARE1_MEMORY);
    let memory = match filled(keys::KUBESHARE1_MEMORY) {
        None => {
            mistakes.push(Mistake::at(
                DIALECT,
                field(),
                "is missing",
                "add it: gpu_request, gpu_limit and gpu_mem go together",
            ));
            None
        }
        Some(text) => {
            let bytes = text.parse::<u64>().ok().filter(|bytes| i64::try_from(*bytes).is_ok());
            if bytes.is_none() {
                mistakes.push(Mistake::about(
                    DIALECT,
                    field(),
                    &text,
                    "is not a number of bytes",
                    "write bytes without a suffix",
                ));
            }
            bytes
        }
    };
    for key in STEERING {
        if let Some(text) = filled(key) {
            let mend = "remove it; pods that belong together form a group, devices are chosen by UUID or model";
            mistakes.push(Mistake::about(
                DIALECT,
                Field::annotation(key),
                &text,
                "steers to a virtual GPU, which Divvy does not have",
                mend,
            ));
        }
    }
    if let (Some(request), Some(limit)) = (&request, &limit)
        && request > limit
    {
        let field = Field::annotation(keys::KUBESHARE1_REQUEST);
        mistakes.push(Mistake::about(
            DIALECT,
            field,
            &request.to_string(),
            format!("is above the limit of {limit}"),
            "lower it, or raise the limit",
        ));
    }
    let draft = request.zip(limit).zip(memory).filter(|((_, limit), _)| limit.limit() != Share::ZERO).map(
        |((request, limit), bytes)| {
            let want = DeviceAsk {
                memory: MemoryAsk::Bytes(Bytes(bytes)),
                share: request.request(),
                share_limit: limit.limit().max(request.request()),
                ..DeviceAsk::default()
            };
            // No class of its own: that is by which KubeShare's placement knows a pod of 1.0, and packs it.
            let mut ask = GpuAsk::of(DIALECT, spread_over_containers(pod, &want));
            if ask.containers.len() > 1 {
                ask.topology = Topology::SameDevice;
            }
            Draft::new(ask, Field::annotation(keys::KUBESHARE1_LIMIT))
        },
    );
    Spoken::from(draft, DIALECT, mistakes)
}

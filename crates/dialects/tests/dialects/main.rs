//! What pods say, dialect by dialect, and what is shown to them in return. Acceptance cases are named by the id they have in docs/reference/compat-cases.md.

#[cfg(test)]
mod asks_doc;
#[cfg(test)]
mod coming_from_doc;
#[cfg(test)]
mod compat_doc;
#[cfg(test)]
mod emulate;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod gpu_manager;
#[cfg(test)]
mod gpushare;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod kubegpu;
#[cfg(test)]
mod kubeshare;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod native;
#[cfg(test)]
mod node;
#[cfg(test)]
mod placed;
#[cfg(test)]
mod several;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vgpu;

//! What is written for people: words, sentences, links, and the list of metrics.

mod events;
mod links;
mod measured;
mod metrics;
mod prose;
mod slow;
mod words;

//! One thread that looks at all groups in which nobody works, so that a node where nothing happens costs one thread's wakeups and not
//! one per card. It does what a group's own thread would, and wakes that as soon as there is more to do.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use divvy_shm::clock::monotonic_ns;

use super::card::Card;

/// Between two looks. While nobody works all gates are open, so whoever begins runs at once and waits for nobody's look; until the look,
/// two who begin together take turns as the card does it.
const LOOK: Duration = Duration::from_millis(40);

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Lookout {
    told: Arc<Told>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Told {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    cards: Arc<Vec<Arc<Card>>>,
    stop: bool,
}

impl Lookout {
    /// Nothing to look at yet.
    pub(super) fn start() -> Lookout {
        let told = Arc::new(Told::default());
        let theirs = told.clone();
        let thread = std::thread::Builder::new().name("lookout".into()).spawn(move || theirs.look());
        if let Err(error) = &thread {
            tracing::error!(%error, "no thread to look out with; the keeper will hold the gates");
        }
        Lookout { told, thread: thread.ok() }
    }

    /// These are all the groups there are.
    pub(super) fn set_cards(&self, cards: Vec<Arc<Card>>) {
        self.told.orders().cards = Arc::new(cards);
        self.told.changed.notify_one();
    }
}

impl Told {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        loop {
            let orders = self.orders();
            if orders.stop {
                return;
            }
            let cards = orders.cards.clone();
            drop(orders);
            for card in cards.iter() {
                card.look_in(monotonic_ns());
            }
            let orders = self.orders();
            let same = |orders: &mut Orders| !orders.stop && Arc::ptr_eq(&orders.cards, &cards);
            if cards.is_empty() {
                drop(self.changed.wait_while(orders, same));
            } else {
                drop(self.changed.wait_timeout_while(orders, LOOK, same));
            }
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.told.orders().stop = true;
        self.told.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

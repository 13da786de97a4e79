//! Budgets for the board, as the budget controller keeps them in its objects' status.

use divvy_api::budget::{BudgetObject, BudgetSpec, BudgetStatus, ClusterBudgetObject};
use divvy_cluster::watch::{Seen, follow};
use divvy_dashboard::Shared;
use divvy_dashboard::budgets::Balances;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{mpsc, watch};

use super::now;

/// Something about a budget; one of the whole cluster has no namespace.
struct News {
    namespace: Option<String>,
    name: String,
    /// What it says and how it stands; nothing when it is gone.
    told: Option<Box<(BudgetSpec, BudgetStatus)>>,
}

/// What keeps the board's budgets: two watches, and one who listens to them. To be supervised by name.
pub(super) fn tasks(client: &Client, shared: Shared) -> Vec<(&'static str, BoxFuture<'static, ()>)> {
    let (to, mut news) = mpsc::channel::<News>(64);
    let (never, _) = watch::channel(0);
    let own = |seen: Seen<BudgetObject>| match seen {
        Seen::Applied(object) => Some(News {
            namespace: Some(object.metadata.namespace),
            name: object.metadata.name,
            told: Some(Box::new((object.spec.budget, object.status))),
        }),
        Seen::Gone(gone) => Some(News { namespace: Some(gone.namespace), name: gone.name, told: None }),
        Seen::Complete(_) => None,
    };
    let cluster = |seen: Seen<ClusterBudgetObject>| match seen {
        Seen::Applied(object) => Some(News {
            namespace: None,
            name: object.metadata.name,
            told: Some(Box::new((object.spec.budget, object.status))),
        }),
        Seen::Gone(gone) => Some(News { namespace: None, name: gone.name, told: None }),
        Seen::Complete(_) => None,
    };
    let listen = async move {
        let mut balances = Balances::default();
        while let Some(News { namespace, name, told }) = news.recv().await {
            match told {
                Some(told) => balances.hear(namespace.as_deref(), &name, &told.0, &told.1, now()),
                None => balances.forget(namespace.as_deref(), &name),
            }
            shared.change(|board| board.set_budgets(balances.all()));
        }
    };
    vec![
        ("watch budgets", follow(client.clone(), to.clone(), never.subscribe(), own).boxed()),
        ("watch cluster budgets", follow(client.clone(), to, never.subscribe(), cluster).boxed()),
        ("balances", listen.boxed()),
    ]
}

//! `divvy controller`: every service of the control plane in one process.

use crate::flags::Common;
use crate::{budget, scheduler, webhook};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    scheduler: scheduler::SchedulerFlags,
    #[command(flatten)]
    webhook: webhook::WebhookFlags,
    #[command(flatten)]
    budget: budget::BudgetFlags,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut service = args.common.service().await?;
    scheduler::add(&mut service, &args.common, &args.scheduler)?;
    webhook::add(&mut service, &args.common, &args.webhook).await?;
    budget::add(&mut service, &args.common, &args.budget)?;
    service.run().await
}

//! Namespaces as tenants: limits on the rules of each.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use testkit::{Bridger, eventually};

use crate::pods::{self, anti_affinity_to, node_affinity_to, pod};
use crate::stage::{Cluster, SOON, Site, counts};
use crate::witness::{VM_HOST, Witness, ids};

struct Tenants {
    site: Site,
    cluster: Cluster,
}

impl Tenants {
    /// Two pods of an app, on different hosts, on these machines.
    async fn place(&self, namespace: &str, app: &str, machines: [usize; 2]) -> Result<()> {
        for machine in machines {
            let node = &self.site.machines[machine].node;
            let pod = pod(&format!("{app}-{machine}"), app, node, &anti_affinity_to(app));
            pods::create_in(&self.cluster.client, namespace, pod).await?;
        }
        Ok(())
    }

    async fn own(&self) -> Result<Witness> {
        Ok(self.site.witness().await?.own(&self.cluster.prefix))
    }

    /// Waits until these pods of a namespace have an event about its limit of one rule, and no others there.
    async fn limited(&self, namespace: &str, expected: [&str; 2], bridger: &Bridger) -> Result<()> {
        eventually(SOON, || async {
            let events = self.cluster.events_in(namespace, "NamespaceRuleLimit").await?;
            let pods: BTreeSet<&str> = events.iter().map(|(pod, _)| pod.as_str()).collect();
            ensure!(pods == BTreeSet::from(expected), "{events:?}\n{}", bridger.output());
            let limit = format!("at most 1 for the namespace {namespace}");
            ensure!(events.iter().all(|(_, message)| message.contains(&limit)), "{events:?}");
            Ok(())
        })
        .await
    }
}

async fn start() -> Result<Tenants> {
    let site = Site::start(6, 6).await?;
    let cluster = Cluster::start(&site, 0..6).await?;
    for namespace in ["tenant-a", "tenant-b"] {
        cluster.control_plane.kubectl().run(&["create", "namespace", namespace]).await?;
    }
    Ok(Tenants { site, cluster })
}

#[tokio::test]
async fn number_9_a_tenant_at_its_limit_gets_an_event_and_the_other_one_its_rule() -> Result<()> {
    let tenants = start().await?;
    let bridger = tenants.cluster.run(&["--rules-per-namespace-max", "1", "--rules-max", "2"]).await?;
    tenants.place("tenant-a", "one", [0, 1]).await?;
    counts(&bridger, "bridger_rules_owned", 1).await?;
    tenants.place("tenant-a", "two", [2, 3]).await?;
    counts(&bridger, "bridger_rules_findings{name=\"namespaceRuleLimit\"}", 1).await?;
    tenants.place("tenant-b", "web", [4, 5]).await?;
    eventually(SOON, || async {
        let own = tenants.own().await?;
        let rules: BTreeSet<_> = own.rules.values().map(|rule| ids(rule, "vm")).collect();
        let expected = BTreeSet::from([tenants.site.ids(&[0, 1]), tenants.site.ids(&[4, 5])]);
        ensure!(rules == expected, "{own:?}\n{}", bridger.output());
        Ok(())
    })
    .await?;
    tenants.limited("tenant-a", ["two-2", "two-3"], &bridger).await?;
    // When the other one is at its limit too, its pods get events. One on `web` would have come long before these.
    tenants.place("tenant-b", "wiki", [0, 2]).await?;
    counts(&bridger, "bridger_rules_findings{name=\"namespaceRuleLimit\"}", 2).await?;
    tenants.limited("tenant-b", ["wiki-0", "wiki-2"], &bridger).await
}

#[tokio::test]
async fn number_9_the_label_of_a_namespace_makes_its_pinning_mandatory() -> Result<()> {
    let tenants = start().await?;
    let bridger = tenants.cluster.run(&["--pinning", "must"]).await?;
    let (node, host) = (&tenants.site.machines[0].node, tenants.site.hosts[0].as_str());
    let pinned = pod("pinned", "pinned", node, &node_affinity_to(&[host]));
    pods::create_in(&tenants.cluster.client, "tenant-a", pinned).await?;
    let is_mandatory = |expected: bool| {
        let (tenants, bridger) = (&tenants, &bridger);
        eventually(SOON, move || async move {
            let own = tenants.own().await?;
            let rules = own.of_kind(VM_HOST);
            ensure!(rules.len() == 1 && rules[0]["mandatory"] == expected, "{own:?}\n{}", bridger.output());
            Ok(())
        })
    };
    is_mandatory(false).await?;
    let label = |label: &'static str| {
        let kubectl = tenants.cluster.control_plane.kubectl();
        async move { kubectl.run(&["label", "namespace", "tenant-a", label]).await }
    };
    label("bridger.dev/rules=cluster").await?;
    is_mandatory(true).await?;
    label("bridger.dev/rules-").await?;
    is_mandatory(false).await
}

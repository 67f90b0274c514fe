//! Namespaces as tenants: limits on the rules of each.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Bridger, eventually};

use crate::pods::{self, HOST_KEY, anti_affinity_to, node_affinity_to, pod};
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

    /// Waits until there are rules for exactly these pairs of machines.
    async fn pairs(&self, expected: &[[usize; 2]], bridger: &Bridger) -> Result<()> {
        let expected: BTreeSet<_> = expected.iter().map(|pair| self.site.ids(pair)).collect();
        eventually(SOON, || async {
            let own = self.own().await?;
            let rules: BTreeSet<_> = own.rules.values().map(|rule| ids(rule, "vm")).collect();
            ensure!(rules == expected, "{rules:?}, not {expected:?}\n{}", bridger.output());
            Ok(())
        })
        .await
    }

    /// Waits until these pods of a namespace, and no others there, have an event with this reason.
    async fn have_events(&self, namespace: &str, reason: &str, pods: &[&str], bridger: &Bridger) -> Result<()> {
        eventually(SOON, || async {
            let events = self.cluster.events_in(namespace, reason).await?;
            let found: BTreeSet<&str> = events.iter().map(|(pod, _)| pod.as_str()).collect();
            ensure!(found == pods.iter().copied().collect(), "{reason}: {events:?}\n{}", bridger.output());
            Ok(())
        })
        .await
    }

    async fn own(&self) -> Result<Witness> {
        Ok(self.site.witness().await?.own(&self.cluster.prefix))
    }

    /// What is left out as a rule still counts for verdicts: for a third pod of `two` only the hosts of the others are taken.
    async fn verdicts_are_unchanged(&self, bridger: &Bridger) -> Result<()> {
        let (mut free, mut taken) = (BTreeSet::new(), BTreeSet::new());
        let of_others = [self.site.host_of(2).await?, self.site.host_of(3).await?];
        for (number, machine) in self.site.machines.iter().enumerate() {
            let is_taken = of_others.contains(&self.site.host_of(number).await?);
            if is_taken { &mut taken } else { &mut free }.insert(machine.node.clone());
        }
        ensure!(free.len() >= 2 && taken.len() > 2, "a world that shows nothing: {free:?} {taken:?}");
        let mut third = pod("two-third", "two", "", &anti_affinity_to("two"));
        (third["metadata"]["namespace"], third["metadata"]["uid"]) = ("tenant-a".into(), "third".into());
        let names: Vec<&String> = self.site.machines.iter().map(|machine| &machine.node).collect();
        eventually(SOON, || async {
            let answer = bridger.post("/filter", &json!({ "Pod": third, "NodeNames": names })).await?;
            let fit = answer["NodeNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fit: BTreeSet<String> = fit.map(str::to_owned).collect();
            ensure!(fit == free, "{fit:?}, not {free:?}: {answer}\n{}", bridger.output());
            Ok(())
        })
        .await
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
    tenants.cluster.grant(&["--for", "run", "--extender"]).await?;
    let flags = ["--rules-per-namespace-max", "1", "--rules-max", "2", "--extender-port", "0"];
    let bridger = tenants.cluster.run(&flags).await?;
    for (machine, host) in [0, 0, 0, 3, 4, 5].into_iter().enumerate() {
        if tenants.site.host_of(machine).await? != tenants.site.hosts[host] {
            tenants.site.migrate(machine, host).await?;
        }
    }
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
    tenants.verdicts_are_unchanged(&bridger).await?;
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

/// A pod on a machine that must not share a host with pods of this app in any namespace.
fn apart_from_all(name: &str, app: &str, node: &str) -> Value {
    let term = json!({ "topologyKey": HOST_KEY, "namespaceSelector": {},
        "labelSelector": { "matchLabels": { "app": app } } });
    let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    pod(name, "alone", node, &affinity)
}

/// Two pods, of which one has more terms that concern the other than become rules.
fn with_many_terms(names: [&str; 2], nodes: [&str; 2]) -> [Value; 2] {
    let label = |number: usize| format!("term-{number}");
    let term = |number: usize| {
        let labels = json!({ label(number): "x" });
        json!({ "topologyKey": HOST_KEY, "labelSelector": { "matchLabels": labels } })
    };
    let terms: Vec<Value> = (0..33).map(term).collect();
    let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    let mut other = pod(names[1], "matched", nodes[1], &json!({}));
    for number in 0..33 {
        other["metadata"]["labels"][label(number)] = "x".into();
    }
    [pod(names[0], "many", nodes[0], &affinity), other]
}

#[tokio::test]
async fn number_9_fair_shares_labelled_namespaces_and_the_cap_on_terms() -> Result<()> {
    let tenants = start().await?;
    let client = &tenants.cluster.client;
    let node = |machine: usize| tenants.site.machines[machine].node.as_str();
    for (app, pair) in [("one", [0, 1]), ("two", [2, 3]), ("three", [4, 5])] {
        tenants.place("tenant-a", app, pair).await?;
    }
    tenants.place("tenant-b", "web", [0, 5]).await?;
    let mut bridger = tenants.cluster.run(&["--rules-max", "2"]).await?;
    counts(&bridger, "bridger_rules_owned", 2).await?;
    let own = tenants.own().await?;
    let has_its_share = own.rules.values().any(|rule| ids(rule, "vm") == tenants.site.ids(&[0, 5]));
    ensure!(own.rules.len() == 2 && has_its_share, "{own:?}\n{}", bridger.output());
    counts(&bridger, "bridger_rules_findings{name=\"ruleLimit\"}", 1).await?;
    bridger.stop();

    // Across namespaces only from labelled ones.
    pods::create_in(client, "tenant-a", apart_from_all("loner", "guest", node(1))).await?;
    pods::create_in(client, "tenant-b", pod("guest", "guest", node(4), &json!({}))).await?;
    let bridger = tenants.cluster.run(&["--rules-across-namespaces", "labelled"]).await?;
    counts(&bridger, "bridger_rules_findings{name=\"confinedToNamespace\"}", 1).await?;
    let mut expected = vec![[0, 1], [2, 3], [4, 5], [0, 5]];
    tenants.pairs(&expected, &bridger).await?;
    tenants.have_events("tenant-a", "ConfinedToNamespace", &["loner"], &bridger).await?;
    let label = ["label", "namespace", "tenant-a", "bridger.dev/rules=cluster"];
    tenants.cluster.control_plane.kubectl().run(&label).await?;
    expected.push([1, 4]);
    tenants.pairs(&expected, &bridger).await?;
    counts(&bridger, "bridger_rules_findings{name=\"confinedToNamespace\"}", 0).await?;

    // 33 terms, of which one too many.
    for pod in with_many_terms(["many", "matched"], [node(2), node(4)]) {
        pods::create_in(client, "tenant-b", pod).await?;
    }
    counts(&bridger, "bridger_rules_findings{name=\"termLimit\"}", 1).await?;
    expected.push([2, 4]);
    tenants.pairs(&expected, &bridger).await?;
    tenants.have_events("tenant-b", "TermLimit", &["many"], &bridger).await
}

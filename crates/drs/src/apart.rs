//! The rules that keep VMs apart, within the plan for one cluster.
//!
//! In: what pods want apart. Out: existing rules brought to what the cover says, new rules, findings. Invariants: pairs that
//! others keep together are left to them; what somebody turned off or deleted twice is not worked around.

use std::collections::{BTreeMap, BTreeSet};

use model::event::RuleFacts;

use crate::classify::OwnRule;
use crate::cluster::{Target, Work};
use crate::cover::{Covering, Existing};
use crate::finding::Finding;
use crate::graph::Graph;
use crate::plan::ActionKind;
use crate::record::{OwnedRule, RuleSort};

impl Work<'_> {
    pub(crate) fn plan_apart(&mut self) {
        let wanted = self.planning.wanted;
        let mut apart = wanted.apart.clone();
        self.yield_to_others(&mut apart);
        let source_of: BTreeMap<&str, usize> =
            wanted.sources.iter().enumerate().map(|(place, source)| (source.digest.as_str(), place)).collect();
        let mut abandoned = BTreeSet::new();
        let mut existing: Vec<(String, Existing)> = Vec::new();
        let names: Vec<String> = self.names_of(RuleSort::Apart);
        for name in names {
            let source = self.rules.get(&name).and_then(|rule| source_of.get(rule.source.as_str()).copied());
            match self.classified.own.get(name.as_str()).cloned() {
                Some(OwnRule { rule, members, .. }) => {
                    let source = source.or_else(|| self.adopt_source(&name, &members));
                    if rule.enabled {
                        let may_shrink = self.is_outnumbered(&name, members.len());
                        existing.push((name, Existing { source, members, may_shrink }));
                    } else {
                        abandoned.extend(source);
                        self.leave_disabled(&name, rule, &members, &mut apart);
                    }
                }
                None if self.rules.get(&name).is_some_and(|rule| rule.restored && rule.uuid.is_some()) => {
                    if let Some(source) = source {
                        abandoned.insert(source);
                        self.findings.push(Finding::DeletedByHand { cluster: self.places.name.clone(), rule: name });
                    } else {
                        self.rules.remove(&name);
                    }
                }
                None => existing.push((name, Existing { source, members: Vec::new(), may_shrink: false })),
            }
        }
        let (names, existing): (Vec<String>, Vec<Existing>) = existing.into_iter().unzip();
        let covering = Covering {
            apart: &apart,
            sources: &wanted.sources,
            guard: self.guard,
            limits: &self.classified.limits,
            abandoned: &abandoned,
        };
        let cover = covering.cover(&existing, &self.classified.apart);
        for ((name, before), members) in names.iter().zip(&existing).zip(&cover.kept) {
            let conflicts = |a: &usize| before.members.iter().any(|b| wanted.apart.has(*a, *b) && !apart.has(*a, *b));
            let urgent = before.may_shrink || before.members.iter().any(conflicts);
            let pods = |work: &Self| work.pods_apart(members);
            let becomes = self.settle(name, &Target { members, urgent }, pods);
            self.finally_apart.extend(becomes.map(|members| (name.clone(), members)));
        }
        let mut new: Vec<(String, String, Vec<usize>)> = Vec::new();
        for rule in cover.new {
            let source = wanted.sources[rule.source].digest.clone();
            new.push((self.new_name("apart", &source), source, rule.members));
        }
        self.create_apart(new);
        for clique in &cover.too_large {
            let mut vms = clique.members.clone();
            vms.extend(&clique.left_out);
            let pods = self.pods_apart(&vms);
            let pairs = |out: &usize| clique.members.iter().filter(|member| cover.left.has(*out, **member)).count();
            let pairs_left = clique.left_out.iter().map(pairs).sum::<usize>().max(1);
            self.findings.push(Finding::Unsatisfiable {
                cluster: self.places.name.clone(),
                vms: vms.len(),
                hosts: self.guard.hosts,
                reserve: self.guard.reserve,
                pairs_left,
                pods,
            });
        }
    }

    /// What rules of others keep together can not be apart: DRS would turn the newer rule off.
    fn yield_to_others(&mut self, apart: &mut Graph) {
        let mut conflicts = Vec::new();
        for (rival, members) in &self.classified.together {
            for (place, &a) in members.iter().enumerate() {
                for &b in members[place + 1..].iter().filter(|b| apart.has(a, **b)) {
                    conflicts.push((a, b, (*rival).to_owned()));
                }
            }
        }
        for (a, b, rival) in conflicts {
            apart.remove(a, b);
            let vms = (self.places.vms[a].name.clone(), self.places.vms[b].name.clone());
            let pods = self.pods_apart(&[a, b]);
            self.findings.push(Finding::Conflict { cluster: self.places.name.clone(), vms, rival, pods });
        }
    }

    /// The term of a rule is gone, maybe only worded differently: the one about most of its members takes its place.
    fn adopt_source(&mut self, name: &str, members: &[usize]) -> Option<usize> {
        let sources = &self.planning.wanted.sources;
        let shared =
            |source: usize| members.iter().filter(|member| sources[source].vms.binary_search(member).is_ok()).count();
        let best = (0..sources.len()).max_by_key(|&source| (shared(source), usize::MAX - source));
        let best = best.filter(|&source| shared(source) > 1)?;
        if let Some(rule) = self.rules.get_mut(name) {
            rule.source.clone_from(&sources[best].digest);
        }
        Some(best)
    }

    /// Whether the rule has had too many members for so long that it may shrink.
    fn is_outnumbered(&mut self, name: &str, members: usize) -> bool {
        let (now, hold) = (self.planning.now, self.planning.settings.shrink_hold);
        let too_many = members > self.guard.members_kept_max();
        let Some(rule) = self.rules.get_mut(name) else { return false };
        rule.outnumbered_since = too_many.then(|| rule.outnumbered_since.unwrap_or(now));
        rule.outnumbered_since.is_some_and(|since| now.is_past(since, hold))
    }

    /// Somebody turned the rule off, or DRS did: it stays so, and is not worked around.
    fn leave_disabled(&mut self, name: &str, rule: &RuleFacts, members: &[usize], apart: &mut Graph) {
        let is_wanted =
            members.iter().enumerate().any(|(place, a)| members[place + 1..].iter().any(|b| apart.has(*a, *b)));
        if is_wanted {
            apart.remove_within(members);
        }
        self.report_disabled(rule, members);
        self.wait(name, !is_wanted, members);
    }

    /// New rules, those first whose members share hosts now, up to the limit.
    fn create_apart(&mut self, mut new: Vec<(String, String, Vec<usize>)>) {
        let limit = self.planning.settings.rules_max;
        let room = limit.saturating_sub(self.rule_count);
        if new.len() > room {
            new.sort_by_cached_key(|(name, _, members)| {
                (std::cmp::Reverse(self.moves(RuleSort::Apart, members).len()), name.clone())
            });
            let left_out = new.len() - room;
            self.findings.push(Finding::RuleLimit { cluster: self.places.name.clone(), left_out, limit });
            new.truncate(room);
        }
        for (name, source, members) in new {
            self.rules.insert(name.clone(), OwnedRule::intent(RuleSort::Apart, source));
            let pods = self.pods_apart(&members);
            self.act(&name, RuleSort::Apart, ActionKind::Create, &members, pods);
            self.rule_count += 1;
            self.finally_apart.insert(name, members);
        }
    }
}

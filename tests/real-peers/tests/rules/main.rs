//! DRS rules from pod policy: `bridger run` and its commands between a real kube-apiserver and vcsim, read with govc.
//!
//! - `stories`: what becomes of pods, step by step. `respect`: what administrators and lost records meet with.
//! - `upgrade`: rules that an earlier version wrote.
//! - `churn`: random steps by everybody at once, with sudden ends.
//! - `stage`: the peers. `pods`: pods as they are posted. `witness`: the cluster's rules as govc tells them.

mod churn;
mod pods;
mod respect;
mod stage;
mod stories;
mod upgrade;
mod witness;

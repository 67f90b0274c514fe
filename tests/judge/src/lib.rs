//! kube-scheduler's own plugins as a judge, and random worlds to put before it.
//!
//! Input: a [`World`] (Kubernetes objects, one of them a pod to place, and a scheduler configuration), made by hand or by
//! [`World::random`]. Output: an [`Answer`] from `scheduler-judge`, a program of the test peers that links the scheduling
//! framework of the Kubernetes release they pin: per node a verdict, per feasible node every plugin's score.
//!
//! Whoever claims to decide like kube-scheduler decides the same world and compares; where the two differ, [`shrink()`]
//! finds a small world in which they still do, and [`Statistics`] says whether the worlds asked anything of each plugin.
//!
//! Invariants:
//! - A world is a pure function of its number and profile, on every machine.
//! - Worlds hold only what the API server accepts and stores: with its defaults filled in by the judge, and with
//!   `matchLabelKeys` merged into selectors.
//! - The judge never outlives the [`Judge`] that started it, and every question has a time limit.

mod answer;
pub mod change;
mod client;
mod generate;
mod lift;
mod shrink;
mod statistics;
mod world;

pub use answer::{Answer, NodeAnswer, Rejection, Verdict};
pub use client::{Judge, JudgeError};
pub use generate::Profile;
pub use shrink::shrink;
pub use statistics::{PluginStatistics, Statistics};
pub use world::World;

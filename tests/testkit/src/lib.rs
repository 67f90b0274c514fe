//! Real peers for tests: etcd with kube-apiserver, kube-controller-manager, kube-scheduler, vcsim, and the commands kubectl and govc.
//!
//! Invariants:
//! - Everything listens on loopback only, on ports chosen by the operating system.
//! - Every started process is stopped, by process id: on drop, on a panic, and when the test process itself is killed
//!   (see [`process`]).
//! - When a test fails, logs are kept, and their path is printed.

pub mod audit;
pub mod bridger;
pub mod command;
pub mod control_plane;
pub mod controller_manager;
pub mod counts;
pub mod pki;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod sandbox;
pub mod scheduler;
pub mod usage;
pub mod vcsim;
pub mod wait;
pub mod workdir;
pub mod worlds;

pub use audit::Audit;
pub use bridger::Bridger;
pub use command::{Govc, Kubectl};
pub use control_plane::ControlPlane;
pub use controller_manager::ControllerManager;
pub use counts::count;
pub use sandbox::Sandbox;
pub use scheduler::Scheduler;
pub use vcsim::{Vcsim, VcsimOptions};
pub use wait::eventually;
pub use worlds::Worlds;

//! After the story: the second act's world goes on at the pace of the wall clock, open to kubectl and govc.
//!
//! Input: the stage as the story left it, and bound ports. Output: the two servers and Bridger's own routes on loopback,
//! until somebody leaves or the time is up. The very same world, Bridger and placer run on: only the clock is let go.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::labels::LabelSettings;
use tokio::time::{Instant, MissedTickBehavior};

use super::DemoRun;
use super::stage::{Stage, world_config};
use super::story::NEW_HOST;
use super::viewer::Viewer;
use super::{Act, show};
use crate::command::PortArguments;
use crate::embedded::{self, Doorway};
use crate::failure::Failure;
use crate::say::say;

const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct Stay {
    pub ports: PortArguments,
    /// Of Bridger itself.
    pub port: u16,
    /// `None` stays until somebody leaves.
    pub at_most: Option<Duration>,
}

/// Ports that are taken, but not served yet.
pub struct Listeners {
    servers: Doorway,
    bridger: tokio::net::TcpListener,
}

impl Listeners {
    pub async fn bind(stay: &Stay) -> Result<Listeners, Failure> {
        let servers = Doorway::bind(&stay.ports).await?;
        let (bridger, _) = embedded::bind(stay.port, "--port").await?;
        Ok(Listeners { servers, bridger })
    }
}

impl DemoRun {
    pub(super) async fn stay(&mut self, mut stage: Stage, listeners: Listeners, stay: &Stay) -> Result<(), Failure> {
        let address = listeners.bridger.local_addr().map_err(|error| Failure::run(error.to_string()))?;
        let config = world_config(simulator::seed::Seed(self.seed));
        let world = stage.world().clone();
        let open = listeners.servers.open(&world, &config, stage.tasks());
        if let Some(router) = stage.bridger().cloned() {
            stage.tasks().spawn(simulator::serve::serve(listeners.bridger, router, None));
        }
        // From here on the wall clock counts: sockets and people are on the other side.
        tokio::time::resume();
        self.show.heading("The world of act 2 goes on, in real time. In another terminal:");
        if let show::Show::Lines = self.show {
            say(&open.exports());
            say(&format!("Listening   http://{address} (/readyz, /metrics)"));
        }
        // Lines as long as those can't be copied off a panel; a file can be named in one short line.
        let invitation = format!(
            ". {}\n\nkubectl scale deployment cart --replicas=4\nkubectl get nodes -L {}\n\
             govc vm.migrate -host {}.lab node-13",
            open.exports_file()?.display(),
            LabelSettings::default().host_key,
            NEW_HOST,
        );
        let began = Instant::now();
        let mut viewer = Viewer::skipping(&world);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stay.at_most.is_none_or(|limit| began.elapsed() < limit) {
            ticks.tick().await;
            let passed = began.elapsed();
            for line in viewer.look(&world, passed) {
                self.tell(line);
            }
            self.draw(Act::With, passed, &viewer, Some(&invitation));
            if self.show.is_left() || self.interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

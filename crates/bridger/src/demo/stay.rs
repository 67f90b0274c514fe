//! `--stay`: after the scenario, the world of the second act continues in real time, for kubectl and govc.
//!
//! Input: the stage at the end of the scenario, and bound ports. Output: the two servers and Bridger's routes on
//! loopback, until the user quits or the time is up. World, Bridger and scheduler keep running; only the clock changes
//! to real time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::labels::LabelSettings;
use tokio::time::{Instant, MissedTickBehavior};

use super::DemoRun;
use super::stage::{DemoStage, world_config};
use super::story::NEW_HOST;
use super::viewer::Viewer;
use super::{Act, show};
use crate::command::PortArguments;
use crate::embedded::{self, BoundPorts};
use crate::failure::Failure;
use crate::say::say;

const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct Stay {
    pub ports: PortArguments,
    /// The port of Bridger itself.
    pub port: u16,
    /// `None`: until the user quits.
    pub at_most: Option<Duration>,
}

/// Ports that are bound but not served yet.
pub struct Listeners {
    servers: BoundPorts,
    bridger: tokio::net::TcpListener,
}

impl Listeners {
    pub async fn bind(stay: &Stay) -> Result<Listeners, Failure> {
        let servers = BoundPorts::bind(&stay.ports).await?;
        let (bridger, _) = embedded::bind(stay.port, "--port").await?;
        Ok(Listeners { servers, bridger })
    }
}

impl DemoRun {
    pub(super) async fn stay(
        &mut self,
        mut stage: DemoStage,
        listeners: Listeners,
        stay: &Stay,
    ) -> Result<(), Failure> {
        let address = listeners.bridger.local_addr().map_err(|error| Failure::run(error.to_string()))?;
        let config = world_config(simulator::seed::Seed(self.seed));
        let world = stage.world().clone();
        let served = listeners.servers.serve(&world, &config, stage.tasks());
        if let Some(router) = stage.bridger().cloned() {
            stage.tasks().spawn(simulator::serve::serve(listeners.bridger, router, None));
        }
        // Real time from here on: clients connect through sockets.
        tokio::time::resume();
        self.show.heading("Act 2 continues in real time. In another terminal:");
        if let show::Show::Lines = self.show {
            say(&served.exports());
            say(&format!("Listening   http://{address} (/readyz, /metrics)"));
        }
        // These lines are too long to be copied from a panel; a file name fits in one short line.
        let invitation = format!(
            ". {}\n\nkubectl scale deployment cart --replicas=4\nkubectl get nodes -L {}\n\
             govc vm.migrate -host {}.lab node-13",
            served.exports_file()?.display(),
            LabelSettings::default().host_key,
            NEW_HOST,
        );
        let began = Instant::now();
        let mut viewer = Viewer::skipping(&world);
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stay.at_most.is_none_or(|limit| began.elapsed() < limit) {
            ticks.tick().await;
            let passed = began.elapsed();
            for line in viewer.look(&world, passed) {
                self.add_line(line);
            }
            self.draw(Act::With, passed, &viewer, Some(&invitation));
            if self.show.quit_requested() || self.interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

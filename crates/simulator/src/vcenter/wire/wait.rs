//! WaitForUpdatesEx and its predecessors: answered when there are updates, or when the client's timeout ends.
//!
//! The wait belongs to the connection: `maxWaitSeconds` is in the client's time. A pending wait keeps its session
//! alive. It ends when the client disconnects, when it is cancelled, or when its session or collector ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::collector::Updates;
use super::methods::{self, Caller, Request};
use super::soap::{Call, Reply};
use crate::clock::SimTime;
use crate::fault::{Fault, Side};
use crate::vcenter::vim_fault::VimFault;
use crate::world::{Core, World};

/// The maximum number of objects in one answer if the client sets no limit.
const OBJECTS_DEFAULT: usize = 1_000;
/// Longer than any client waits; keeps deadlines representable.
const WAIT_S_MAX: u64 = 7 * 24 * 3600;

/// A wait in progress.
struct Begun {
    cookie: String,
    session_key: String,
    collector: u32,
    cancels: u64,
    max_objects: usize,
    signals: tokio::sync::watch::Receiver<u64>,
    /// The previous answer, if the client did not receive it.
    lost: Option<Updates>,
}

pub(crate) async fn wait(world: &Arc<World>, caller: &Caller, call: &Call) -> Result<Reply, VimFault> {
    let deadline = max_wait(call)?.map(|wait| Instant::now() + wait);
    // Subscribe before the first read, so that no change is missed in between.
    let mut changes = world.vcenter_changes();
    let mut begun = world.with(|core, now| {
        let mut request = methods::authenticate(&mut core.vcenter, now, caller, call)?;
        let begun = begin(&mut request, call)?;
        request.session_mut()?.waiting += 1;
        Ok(begun)
    })?;
    let _kept_alive = KeptAlive { world: world.clone(), cookie: begun.cookie.clone() };
    if let Some(lost) = begun.lost.take() {
        return Ok(Reply::One(lost.into_value()));
    }
    loop {
        changes.borrow_and_update();
        begun.signals.borrow_and_update();
        if let Some(updates) = world.with(|core, now| look(core, now, &begun, call))? {
            return Ok(Reply::One(updates.into_value()));
        }
        let timed_out = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = changes.changed() => (),
            _ = begun.signals.changed() => (),
            () = timed_out => return Ok(Reply::Nothing),
        }
    }
}

/// How long the client waits; `None` means indefinitely.
fn max_wait(call: &Call) -> Result<Option<Duration>, VimFault> {
    if call.method == "CheckForUpdates" {
        return Ok(Some(Duration::ZERO));
    }
    let options = call.arguments.child("options");
    match options.and_then(|options| options.child_text("maxWaitSeconds")) {
        None => Ok(None),
        Some(text) => {
            let seconds: i32 = text
                .parse()
                .map_err(|_| VimFault::InvalidArgument { property: "options.maxWaitSeconds".to_owned() })?;
            Ok(Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(WAIT_S_MAX))))
        }
    }
}

fn begin(request: &mut Request<'_>, call: &Call) -> Result<Begun, VimFault> {
    let collector = request.collector_number()?;
    let options = call.arguments.child("options");
    let max_objects = options
        .and_then(|options| options.child_text("maxObjectUpdates"))
        .and_then(|text| text.parse().ok())
        .filter(|max| *max > 0)
        .unwrap_or(OBJECTS_DEFAULT);
    let version = call.arguments.child_text("version").unwrap_or_default().to_owned();
    let signals = request.vcenter.wire.signals();
    let session = request.session_mut()?;
    let session_key = session.key.clone();
    let state = session.collectors.get_mut(&collector).ok_or(VimFault::NotFound)?;
    let lost = state.begin_wait(&version)?;
    let cancels = state.cancels;
    Ok(Begun { cookie: request.cookie.clone(), session_key, collector, cancels, max_objects, signals, lost })
}

fn look(core: &mut Core, now: SimTime, begun: &Begun, call: &Call) -> Result<Option<Updates>, VimFault> {
    let vcenter = &mut core.vcenter;
    methods::bring_up_to_date(vcenter, &begun.cookie, now);
    let session = vcenter.wire.sessions.get(&begun.cookie).filter(|session| session.key == begun.session_key);
    let Some(session) = session else { return Err(VimFault::NotAuthenticated) };
    match session.collectors.get(&begun.collector) {
        None => return Err(VimFault::RequestCanceled),
        Some(collector) if collector.cancels != begun.cancels => return Err(VimFault::RequestCanceled),
        Some(_) => (),
    }
    let updates = methods::with_collector(vcenter, &begun.cookie, begun.collector, now, |collector, scope| {
        collector.poll(scope, begun.max_objects)
    })?;
    Ok(updates.map(|mut updates| {
        apply_faults(core, now, &mut updates, call);
        updates
    }))
}

/// Applies the faults that affect delivered updates.
fn apply_faults(core: &mut Core, now: SimTime, updates: &mut Updates, call: &Call) {
    if call.method != "WaitForUpdatesEx" {
        return;
    }
    let mut strike =
        |applies: fn(&Fault) -> bool| core.faults.strike(now, Side::Vcenter, &call.method, applies).is_some();
    if strike(|fault| matches!(fault, Fault::DuplicateEvents)) {
        for (_, objects) in &mut updates.filters {
            *objects = objects.iter().flat_map(|object| [object.clone(), object.clone()]).collect();
        }
    }
    // A single update cannot be reordered.
    if updates.filters.iter().any(|(_, objects)| objects.len() > 1)
        && strike(|fault| matches!(fault, Fault::ReorderedEvents))
    {
        for (_, objects) in &mut updates.filters {
            let before = objects.clone();
            core.vcenter.wire.shuffle(objects);
            if *objects == before && objects.len() > 1 {
                objects.rotate_left(1);
            }
        }
    }
}

/// Counts the wait in its session until it is dropped, however it ends.
struct KeptAlive {
    world: Arc<World>,
    cookie: String,
}

impl Drop for KeptAlive {
    fn drop(&mut self) {
        self.world.with(|core, now| {
            if let Some(session) = core.vcenter.wire.sessions.get_mut(&self.cookie) {
                session.waiting = session.waiting.saturating_sub(1);
                session.last_active = now;
            }
        });
    }
}

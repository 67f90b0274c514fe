//! Free loopback ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Ports that are free now. All are bound at the same time while they are chosen, so they differ. Another process may
/// still take one before the program binds it, so callers retry with other ports.
pub fn free<const N: usize>() -> io::Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<_>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

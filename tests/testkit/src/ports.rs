//! Free loopback ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Ports that nobody listens on now. They are held together while being picked, so they differ; a program that is told
/// one may still find it taken a moment later, so whoever starts a program tries again with others.
pub fn free<const N: usize>() -> io::Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<_>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

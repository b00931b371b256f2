//! The inbox on each database.

mod accept;
mod broken;
mod commit;
mod deliver;
mod kit;
mod lab;
mod lost;
mod poison;
mod process;
#[allow(dead_code, reason = "not every helper of the servers is of use here")]
mod servers;
mod settings;

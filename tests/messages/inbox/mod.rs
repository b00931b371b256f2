//! The inbox on each database.

mod accept;
mod broken;
mod commit;
mod deliver;
mod kit;
mod lab;
mod lost;
mod poison;
mod pooled;
mod prepare;
mod process;
mod settings;

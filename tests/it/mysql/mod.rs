//! The MySQL store on MariaDB, in both of its ways, alone and behind the layer.

mod commit;
mod faults;
mod keyless;
mod kit;
mod load;
mod migrations;
mod operate;
mod round_trips;
mod sessions;
mod stress;
mod transaction_ended;

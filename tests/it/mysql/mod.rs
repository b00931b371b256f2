//! The MySQL store on MariaDB, in both of its ways, alone and behind the layer.

mod kit;

//! MariaDB and MySQL.

use idempotency::precondition::Version;
use sqlx::MySql;

use super::{Database, Document, Name, Result, document};

/// The text is compared byte for byte, and an index needs columns of a bounded length.
const CREATE: &[&str] = &["CREATE TABLE IF NOT EXISTS documents (
    owner varchar(512) NOT NULL, id varchar(64) NOT NULL, version varchar(64) NOT NULL, body longblob NOT NULL,
    PRIMARY KEY (owner, id)) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"];
const READ: &str = "SELECT version, body FROM documents WHERE owner = ? AND id = ?";
const INSERT: &str = "INSERT INTO documents (owner, id, version, body) VALUES (?, ?, ?, ?)";
const UPDATE: &str = "UPDATE documents SET version = ?, body = ? WHERE owner = ? AND id = ? AND version = ?";
const DELETE: &str = "DELETE FROM documents WHERE owner = ? AND id = ? AND version = ?";

database!(MySql);

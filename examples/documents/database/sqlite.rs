//! SQLite.

use idempotency::precondition::Version;
use sqlx::Sqlite;

use super::{Database, Document, Name, Result, document};

const CREATE: &[&str] = &["CREATE TABLE IF NOT EXISTS documents (
    owner TEXT NOT NULL, id TEXT NOT NULL, version TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (owner, id))"];
const READ: &str = "SELECT version, body FROM documents WHERE owner = ?1 AND id = ?2";
const INSERT: &str = "INSERT INTO documents (owner, id, version, body) VALUES (?1, ?2, ?3, ?4)";
const UPDATE: &str = "UPDATE documents SET version = ?1, body = ?2 WHERE owner = ?3 AND id = ?4 AND version = ?5";
const DELETE: &str = "DELETE FROM documents WHERE owner = ?1 AND id = ?2 AND version = ?3";

database!(Sqlite);

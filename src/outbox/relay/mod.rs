//! Moves events from the table to their destinations.

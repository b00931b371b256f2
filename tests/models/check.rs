//! Runs a search, and says what came of it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// Every property holds in every state, and no path returns to where it was: so every path ends.
pub(crate) fn holds<M>(name: &str, model: &M)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Clone + PartialEq + Debug + Send + Sync,
    M::Action: Clone + PartialEq + Debug,
    M: Clone,
{
    let began = Instant::now();
    let checker = model.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{name}: {} states, depth {}, {:.1?}", checker.unique_state_count(), checker.max_depth(), began.elapsed());
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let last = path.last_state().clone();
        panic!("{name}: \"{property}\" does not hold: {:#?}\nin {last:#?}", path.into_actions());
    }
    let length = longest(model).unwrap_or_else(|state| panic!("{name}: a path returns to {state:#?}"));
    println!("{name}: the longest path has {length} steps");
}

/// The length of the longest path; a state that a path returns to is an error.
fn longest<M: Model>(model: &M) -> Result<usize, M::State>
where
    M::State: Hash + Clone,
{
    let mut longest = 0;
    // Whether a state is on the path, by its hash.
    let mut seen: HashMap<u64, bool> = HashMap::new();
    for state in model.init_states() {
        let mut path = vec![(hash(&state), model.next_states(&state))];
        seen.insert(path[0].0, true);
        while let Some((at, next)) = path.last_mut() {
            let Some(state) = next.pop() else {
                seen.insert(*at, false);
                path.pop();
                continue;
            };
            match seen.get(&hash(&state)) {
                Some(true) => return Err(state),
                Some(false) => {}
                None => {
                    seen.insert(hash(&state), true);
                    path.push((hash(&state), model.next_states(&state)));
                    longest = longest.max(path.len() - 1);
                }
            }
        }
    }
    Ok(longest)
}

fn hash(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The search finds a state in which this property does not hold.
pub(crate) fn breaks<M>(name: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Clone + PartialEq + Debug + Send + Sync,
    M::Action: Clone + PartialEq + Debug,
{
    let until = HasDiscoveries::AnyOf([property].into());
    let found = model.checker().threads(2).finish_when(until).spawn_bfs().join().discovery(property);
    let found = found.unwrap_or_else(|| panic!("{name}: \"{property}\" holds, in spite of the mistake"));
    println!("{name}: caught in {} steps by \"{property}\"", found.into_actions().len());
}

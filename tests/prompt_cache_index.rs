//! Which cached prefix serves a prompt, and what goes when memory runs short. Rules and a naive reference.

use mlx_chat::engine::prompt_cache::index::{
    Class, EntryId, Index, Inserted, Namespace, NewEntry, Relation, Why,
};
use proptest::prelude::*;

fn ns() -> Namespace {
    Namespace::new("model/f32")
}

fn entry(tokens: &[u32], bytes: u64) -> NewEntry<&'static str> {
    NewEntry {
        tokens: tokens.to_vec(),
        bytes,
        class: Class::Turn,
        trimmable: true,
        payload: "",
    }
}

fn fixed(tokens: &[u32], bytes: u64) -> NewEntry<&'static str> {
    NewEntry {
        trimmable: false,
        ..entry(tokens, bytes)
    }
}

fn system(tokens: &[u32], bytes: u64) -> NewEntry<&'static str> {
    NewEntry {
        class: Class::System,
        ..entry(tokens, bytes)
    }
}

fn index(of: Vec<NewEntry<&'static str>>) -> (Index<&'static str>, Vec<EntryId>) {
    let mut index = Index::new(1000);
    let ids = of
        .into_iter()
        .map(|new| index.insert(&ns(), new).id.expect("stored"))
        .collect();
    (index, ids)
}

/// (usable, trim, relation) of the best entry for `tokens`, all but the last of them wanted.
fn look(index: &mut Index<&'static str>, tokens: &[u32]) -> Option<(usize, usize, Relation)> {
    index
        .lookup(&ns(), tokens, tokens.len() - 1)
        .map(|hit| (hit.usable, hit.trim, hit.relation))
}

fn whys<E>(inserted: &Inserted<E>) -> Vec<(Vec<u32>, Why)> {
    inserted
        .removed
        .iter()
        .map(|removed| (removed.tokens.clone(), removed.why))
        .collect()
}

#[test]
fn a_prefix_of_one_token_hits() {
    let (mut index, _) = index(vec![entry(&[5], 1)]);
    assert_eq!(look(&mut index, &[5, 6, 7]), Some((1, 0, Relation::Shorter)));
}

#[test]
fn the_last_token_of_a_prompt_is_never_served() {
    let (mut index, _) = index(vec![entry(&[1, 2, 3], 1)]);
    assert_eq!(look(&mut index, &[1, 2, 3]), Some((2, 1, Relation::Exact)));
    assert_eq!(look(&mut index, &[1]), None);
}

#[test]
fn a_prefix_exactly_one_token_shorter_serves_all_but_the_last() {
    let (mut index, _) = index(vec![fixed(&[1, 2], 1)]);
    assert_eq!(look(&mut index, &[1, 2, 3]), Some((2, 0, Relation::Shorter)));
}

#[test]
fn the_longest_of_several_prefixes_serves() {
    let (mut index, ids) = index(vec![
        fixed(&[1], 1),
        fixed(&[1, 2, 3], 1),
        fixed(&[1, 2], 1),
        fixed(&[1, 2, 3, 9], 1),
    ]);
    let hit = index.lookup(&ns(), &[1, 2, 3, 4], 3).unwrap();
    assert_eq!((hit.id, hit.usable, hit.trim), (ids[1], 3, 0));
}

#[test]
fn a_longer_entry_serves_only_if_it_can_be_trimmed_to_the_common_prefix() {
    let (mut trimmable, _) = index(vec![entry(&[1, 2, 3, 4, 5], 1)]);
    assert_eq!(look(&mut trimmable, &[1, 2, 3]), Some((2, 3, Relation::Longer)));
    assert_eq!(
        look(&mut trimmable, &[1, 2, 3, 9, 9]),
        Some((3, 2, Relation::Longer))
    );
    let (mut untrimmable, _) = index(vec![fixed(&[1, 2, 3, 4, 5], 1)]);
    assert_eq!(look(&mut untrimmable, &[1, 2, 3]), None);
    assert_eq!(look(&mut untrimmable, &[1, 2, 3, 9, 9]), None);
    assert_eq!(
        look(&mut untrimmable, &[1, 2, 3, 4, 5]),
        None,
        "an exact one would have to lose its last token"
    );
}

#[test]
fn a_trimmable_entry_that_parts_early_serves_where_a_closer_one_cannot_be_cut() {
    let (mut index, _) = index(vec![fixed(&[1, 2, 3, 4, 5, 6], 1), entry(&[1, 2, 8, 8], 1)]);
    assert_eq!(
        look(&mut index, &[1, 2, 3, 4, 9, 9]),
        Some((2, 2, Relation::Longer))
    );
}

#[test]
fn among_equals_the_one_that_needs_no_trimming_serves() {
    let (mut index, ids) = index(vec![
        fixed(&[1, 2], 1),
        entry(&[1, 2, 3, 4], 1),
        system(&[1, 2, 3], 1),
    ]);
    // The first was superseded by the second; the third is a system prompt.
    assert_eq!(index.lookup(&ns(), &[1, 2, 3, 9], 3).unwrap().id, ids[2]);
    assert_eq!(index.lookup(&ns(), &[1, 2, 3, 4], 3).unwrap().id, ids[2]);
}

#[test]
fn namespaces_share_nothing() {
    let (mut index, _) = index(vec![entry(&[1, 2, 3], 1)]);
    assert!(index.lookup(&Namespace::new("model/q8"), &[1, 2, 3], 2).is_none());
}

#[test]
fn a_lookup_does_not_consume() {
    let (mut index, ids) = index(vec![entry(&[1, 2, 3], 1)]);
    for _ in 0..3 {
        assert_eq!(look(&mut index, &[1, 2, 3, 4]), Some((3, 0, Relation::Shorter)));
    }
    assert!(index.get(ids[0]).is_some());
}

#[test]
fn an_equal_key_replaces() {
    let (mut index, ids) = index(vec![entry(&[1, 2], 10)]);
    let inserted = index.insert(&ns(), entry(&[1, 2], 30));
    assert_eq!(whys(&inserted), [(vec![1, 2], Why::Replaced)]);
    assert!(index.get(ids[0]).is_none());
    assert_eq!(
        (
            index.stats().entries,
            index.stats().bytes,
            index.stats().evictions
        ),
        (1, 30, 0)
    );
}

#[test]
fn a_system_prompt_stays_one_when_a_turn_has_the_same_key() {
    let (mut index, _) = index(vec![system(&[1, 2], 10)]);
    let id = index.insert(&ns(), entry(&[1, 2], 10)).id.unwrap();
    index.insert(&ns(), entry(&[9], 985));
    assert!(index.get(id).is_some() && index.stats().bytes == 995);
    index.insert(&ns(), entry(&[8], 900));
    assert!(index.get(id).is_some());
}

#[test]
fn a_trimmable_entry_supersedes_what_it_continues_but_not_system_prompts() {
    let (mut index, ids) = index(vec![
        entry(&[1, 2, 3], 1),
        system(&[1, 2], 1),
        fixed(&[1, 2, 3, 4], 1),
        entry(&[1, 9], 1),
    ]);
    let inserted = index.insert(&ns(), entry(&[1, 2, 3, 4, 5], 1));
    assert_eq!(
        whys(&inserted),
        [
            (vec![1, 2, 3], Why::Superseded),
            (vec![1, 2, 3, 4], Why::Superseded)
        ]
    );
    assert!(index.get(ids[1]).is_some() && index.get(ids[3]).is_some());
    assert_eq!(index.stats().entries, 3);
    assert_eq!(index.stats().evictions, 0);
}

#[test]
fn an_untrimmable_entry_never_replaces_a_shorter_one() {
    let (mut index, _) = index(vec![fixed(&[1, 2, 3], 1), entry(&[1, 2, 3, 4], 1)]);
    assert!(
        index
            .insert(&ns(), fixed(&[1, 2, 3, 4, 5, 6], 1))
            .removed
            .is_empty()
    );
    assert_eq!(
        look(&mut index, &[1, 2, 3, 4, 9]),
        Some((4, 0, Relation::Shorter))
    );
}

#[test]
fn the_least_recently_used_goes_first_and_a_hit_is_a_use() {
    let (mut index, ids) = index(vec![entry(&[1, 1], 400), entry(&[2, 2], 400)]);
    assert!(look(&mut index, &[1, 1, 1]).is_some());
    let inserted = index.insert(&ns(), entry(&[3, 3], 400));
    assert_eq!(whys(&inserted), [(vec![2, 2], Why::Evicted)]);
    assert!(index.get(ids[0]).is_some());
    assert_eq!(index.stats().evictions, 1);
}

#[test]
fn system_prompts_outlive_turns() {
    let (mut index, ids) = index(vec![system(&[1], 300), entry(&[2], 300), entry(&[3], 300)]);
    let inserted = index.insert(&ns(), entry(&[4], 500));
    assert_eq!(
        whys(&inserted),
        [(vec![2], Why::Evicted), (vec![3], Why::Evicted)]
    );
    assert!(index.get(ids[0]).is_some());
}

#[test]
fn what_was_just_stored_is_not_its_own_victim() {
    let (mut index, ids) = index(vec![system(&[1], 600), system(&[2], 300)]);
    let inserted = index.insert(&ns(), entry(&[4], 500));
    assert_eq!(whys(&inserted), [(vec![1], Why::Evicted)]);
    assert!(index.get(inserted.id.unwrap()).is_some() && index.get(ids[1]).is_some());
}

#[test]
fn an_entry_over_the_limit_alone_is_given_back_and_nothing_goes_for_it() {
    let (mut index, _) = index(vec![entry(&[1, 2], 900)]);
    let inserted = index.insert(&ns(), entry(&[1, 2, 3], 1001));
    assert_eq!(
        (inserted.id, whys(&inserted)),
        (None, vec![(vec![1, 2, 3], Why::NotStored)])
    );
    assert_eq!((index.stats().entries, index.stats().bytes), (1, 900));
    assert!(index.insert(&ns(), entry(&[], 1)).id.is_none());
}

#[test]
fn under_pressure_it_shrinks_and_keeps_its_limit() {
    let (mut index, _) = index(vec![entry(&[1], 400), system(&[2], 100), entry(&[3], 400)]);
    let gone: Vec<_> = index
        .shrink_to(500)
        .into_iter()
        .map(|removed| removed.tokens)
        .collect();
    assert_eq!(gone, [vec![1]]);
    assert_eq!(index.stats().limit, 1000);
    assert_eq!(index.set_limit(100).len(), 1);
    assert_eq!((index.stats().bytes, index.stats().limit), (100, 100));
    assert_eq!(index.shrink_to(0).len(), 1);
    assert_eq!(index.stats().entries, 0);
}

#[test]
fn draining_gives_everything_back_in_order_of_use() {
    let (mut index, ids) = index(vec![system(&[1], 1), entry(&[2], 1), entry(&[3], 1)]);
    assert!(look(&mut index, &[2, 2]).is_some());
    assert_eq!(index.by_recency()[0], (ids[1], 1));
    assert_eq!(
        index.remove(ids[2]).map(|removed| removed.why),
        Some(Why::Removed)
    );
    let order: Vec<_> = index.drain().into_iter().map(|removed| removed.tokens).collect();
    assert_eq!(order, [vec![1], vec![2]]);
    assert_eq!((index.stats().entries, index.stats().bytes), (0, 0));
}

#[test]
fn a_key_of_a_hundred_thousand_tokens_needs_no_stack() {
    let tokens: Vec<u32> = (0..100_000).map(|token| token % 50).collect();
    let mut index = Index::new(u64::MAX);
    // A node for every thousandth token.
    for length in (1000..=100_000).step_by(1000) {
        index.insert(&ns(), fixed(&tokens[..length], 1));
    }
    assert_eq!(
        index.lookup(&ns(), &tokens, 99_999).map(|hit| hit.usable),
        Some(99_000)
    );
    assert_eq!(index.drain().len(), 100);
}

#[derive(Debug, Clone)]
enum Act {
    Insert {
        ns: usize,
        tokens: Vec<u32>,
        bytes: u64,
        system: bool,
        trimmable: bool,
    },
    Lookup {
        ns: usize,
        tokens: Vec<u32>,
        short: usize,
    },
    Remove(usize),
    Shrink(u64),
}

fn tokens() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..3, 0..9)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0usize..2, tokens(), 1u64..60, any::<bool>(), any::<bool>()).prop_map(
            |(ns, tokens, bytes, system, trimmable)| Act::Insert { ns, tokens, bytes, system, trimmable }
        ),
        4 => (0usize..2, tokens(), 0usize..3).prop_map(|(ns, tokens, short)| Act::Lookup { ns, tokens, short }),
        1 => (0usize..9).prop_map(Act::Remove),
        1 => (0u64..120).prop_map(Act::Shrink),
    ]
}

/// The same rules, by linear scan.
#[derive(Debug, Clone)]
struct Plain {
    id: EntryId,
    ns: usize,
    tokens: Vec<u32>,
    bytes: u64,
    class: Class,
    trimmable: bool,
}

/// Entries by use, least recently used first.
#[derive(Default)]
struct Naive {
    entries: Vec<Plain>,
}

impl Naive {
    fn usable(entry: &Plain, tokens: &[u32], limit: usize) -> usize {
        let common = entry
            .tokens
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count();
        if entry.trimmable || (common == entry.tokens.len() && common <= limit) {
            common.min(limit)
        } else {
            0
        }
    }

    fn evict(&mut self, bytes: u64, spare: Option<EntryId>) {
        while self.entries.iter().map(|entry| entry.bytes).sum::<u64>() > bytes {
            let of = |class| {
                self.entries
                    .iter()
                    .position(|entry| entry.class == class && Some(entry.id) != spare)
            };
            let Some(victim) = of(Class::Turn).or_else(|| of(Class::System)) else {
                return;
            };
            self.entries.remove(victim);
        }
    }

    fn insert(&mut self, mut new: Plain, limit: u64) {
        if let Some(at) = self
            .entries
            .iter()
            .position(|old| old.ns == new.ns && old.tokens == new.tokens)
        {
            new.class = new.class.max(self.entries.remove(at).class);
        }
        if new.trimmable {
            self.entries.retain(|old| {
                old.ns != new.ns || old.class == Class::System || !new.tokens.starts_with(&old.tokens)
            });
        }
        let id = new.id;
        self.entries.push(new);
        self.evict(limit, Some(id));
    }
}

proptest! {
    #[test]
    fn it_does_what_a_linear_scan_does(acts in prop::collection::vec(act(), 1..80)) {
        let names = [Namespace::new("a"), Namespace::new("b")];
        let mut index = Index::new(150);
        let mut naive = Naive::default();
        for act in acts {
            match act {
                Act::Insert { ns, tokens, bytes, system, trimmable } => {
                    let class = if system { Class::System } else { Class::Turn };
                    let new = NewEntry { tokens: tokens.clone(), bytes, class, trimmable, payload: tokens.clone() };
                    let inserted = index.insert(&names[ns], new);
                    prop_assert_eq!(inserted.id.is_some(), !tokens.is_empty());
                    for removed in &inserted.removed {
                        prop_assert_eq!(&removed.tokens, &removed.payload, "an entry keeps its key");
                    }
                    if let Some(id) = inserted.id {
                        naive.insert(Plain { id, ns, tokens, bytes, class, trimmable }, 150);
                    }
                }
                Act::Lookup { ns, tokens, short } => {
                    let limit = tokens.len().saturating_sub(short);
                    let here = |entry: &&Plain| entry.ns == ns;
                    let best = naive.entries.iter().filter(here).map(|e| Naive::usable(e, &tokens, limit)).max();
                    let hit = index.lookup(&names[ns], &tokens, limit);
                    prop_assert_eq!(hit.map_or(0, |hit| hit.usable), best.unwrap_or(0));
                    if let Some(hit) = hit {
                        let at = naive.entries.iter().position(|entry| entry.id == hit.id).expect("it exists");
                        let entry = naive.entries.remove(at);
                        prop_assert_eq!(entry.ns, ns);
                        prop_assert_eq!(Naive::usable(&entry, &tokens, limit), hit.usable);
                        prop_assert_eq!(hit.trim, entry.tokens.len() - hit.usable);
                        let relation = if entry.tokens == tokens {
                            Relation::Exact
                        } else if tokens.starts_with(&entry.tokens) {
                            Relation::Shorter
                        } else {
                            Relation::Longer
                        };
                        prop_assert_eq!(hit.relation, relation);
                        naive.entries.push(entry);
                    }
                }
                Act::Remove(at) => {
                    if at < naive.entries.len() {
                        let entry = naive.entries.remove(at);
                        prop_assert_eq!(index.remove(entry.id).map(|removed| removed.tokens), Some(entry.tokens));
                    }
                }
                Act::Shrink(bytes) => {
                    index.shrink_to(bytes);
                    naive.evict(bytes, None);
                }
            }
            let held: Vec<_> = naive.entries.iter().rev().map(|entry| (entry.id, entry.bytes)).collect();
            prop_assert_eq!(index.by_recency(), held);
            prop_assert!(index.stats().bytes <= 150);
        }
        for (id, _) in index.by_recency() {
            let entry = naive.entries.iter().find(|entry| entry.id == id).expect("it exists");
            prop_assert_eq!(index.get(id), Some(&entry.tokens));
        }
    }
}

//! A compressed trie of token sequences: a node per branching, its edge a run of tokens. Nodes lie in one list and
//! name each other by place, and every walk is a loop, so depth costs no stack.

/// Names a node of one trie. Splitting and merging keep the id of a node that holds an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(u32);

const ROOT: NodeId = NodeId(0);

#[derive(Debug)]
struct Node<T> {
    parent: NodeId,
    /// Tokens from the parent to here; empty only at the root.
    label: Vec<u32>,
    /// By the first token of the child's label, ascending.
    children: Vec<(u32, NodeId)>,
    entry: Option<T>,
    trimmable: bool,
    /// Trimmable entries here and below.
    trimmable_below: usize,
}

/// A place on the way of a walk: `depth` tokens are shared with every entry at or below `node`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<T> {
    pub(super) node: NodeId,
    pub(super) depth: usize,
    /// The entry whose key is exactly the shared tokens.
    pub(super) entry: Option<T>,
}

/// The trie; it holds an entry of type `T` per key.
#[derive(Debug)]
pub(super) struct Trie<T> {
    nodes: Vec<Node<T>>,
    free: Vec<NodeId>,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self {
            nodes: vec![Node::new(ROOT, Vec::new())],
            free: Vec::new(),
        }
    }
}

impl<T> Node<T> {
    fn new(parent: NodeId, label: Vec<u32>) -> Self {
        Self {
            parent,
            label,
            children: Vec::new(),
            entry: None,
            trimmable: false,
            trimmable_below: 0,
        }
    }

    fn child(&self, token: u32) -> Result<NodeId, usize> {
        let at = self.children.binary_search_by_key(&token, |child| child.0)?;
        Ok(self.children[at].1)
    }

    fn set_child(&mut self, token: u32, child: NodeId) {
        match self.children.binary_search_by_key(&token, |child| child.0) {
            Ok(at) => self.children[at].1 = child,
            Err(at) => self.children.insert(at, (token, child)),
        }
    }
}

impl<T: Copy> Trie<T> {
    fn node(&self, id: NodeId) -> &Node<T> {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<T> {
        &mut self.nodes[id.0 as usize]
    }

    fn add(&mut self, node: Node<T>) -> NodeId {
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        let id = NodeId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes"));
        self.nodes.push(node);
        id
    }

    /// Whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        let root = self.node(ROOT);
        root.children.is_empty() && root.entry.is_none()
    }

    /// Nodes in use, the root included.
    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// The places that `tokens` leads through, from the root; the last has the deepest common prefix, which may end
    /// within the edge to its node.
    pub(super) fn walk(&self, tokens: &[u32]) -> Vec<Place<T>> {
        let mut places = vec![Place {
            node: ROOT,
            depth: 0,
            entry: self.node(ROOT).entry,
        }];
        let (mut at, mut depth) = (ROOT, 0);
        while let Some(&token) = tokens.get(depth) {
            let Ok(child) = self.node(at).child(token) else {
                break;
            };
            let node = self.node(child);
            let shared = common(&node.label, &tokens[depth..]);
            depth += shared;
            let whole = shared == node.label.len();
            places.push(Place {
                node: child,
                depth,
                entry: node.entry.filter(|_| whole),
            });
            if !whole {
                break;
            }
            at = child;
        }
        places
    }

    /// A trimmable entry at or below a node: the one with the lowest tokens, the shorter of two on one path.
    pub(super) fn trimmable_below(&self, from: NodeId) -> Option<T> {
        let mut node = self.node(from);
        while node.trimmable_below > 0 {
            if node.trimmable {
                return node.entry;
            }
            let below = node.children.iter().map(|child| self.node(child.1));
            node = below.into_iter().find(|child| child.trimmable_below > 0)?;
        }
        None
    }

    /// Puts an entry at a key that holds none.
    pub(super) fn insert(&mut self, tokens: &[u32], entry: T, trimmable: bool) -> NodeId {
        let (mut at, mut depth) = (ROOT, 0);
        while depth < tokens.len() {
            let Ok(child) = self.node(at).child(tokens[depth]) else {
                let label = tokens[depth..].to_vec();
                let leaf = self.add(Node::new(at, label));
                self.node_mut(at).set_child(tokens[depth], leaf);
                at = leaf;
                break;
            };
            let shared = common(&self.node(child).label, &tokens[depth..]);
            at = if shared < self.node(child).label.len() {
                self.split(child, shared)
            } else {
                child
            };
            depth += shared;
        }
        let node = self.node_mut(at);
        node.entry = Some(entry);
        node.trimmable = trimmable;
        if trimmable {
            self.count(at, 1);
        }
        at
    }

    /// The tokens from the root to a node.
    pub(super) fn key(&self, node: NodeId) -> Vec<u32> {
        let mut labels = Vec::new();
        let mut at = node;
        while at != ROOT {
            labels.push(&self.node(at).label);
            at = self.node(at).parent;
        }
        labels.into_iter().rev().flatten().copied().collect()
    }

    /// Takes the entry from a node, and what held only it.
    pub(super) fn remove(&mut self, id: NodeId) {
        if self.node(id).trimmable {
            self.count(id, -1);
        }
        let node = self.node_mut(id);
        node.entry = None;
        node.trimmable = false;
        let mut at = id;
        while at != ROOT && self.node(at).entry.is_none() && self.node(at).children.is_empty() {
            let parent = self.node(at).parent;
            let token = self.node(at).label[0];
            self.node_mut(parent).children.retain(|child| child.0 != token);
            self.release(at);
            at = parent;
        }
        if at != ROOT && self.node(at).entry.is_none() && self.node(at).children.len() == 1 {
            self.merge(at);
        }
    }

    /// Puts a node into the edge above `id`, after `length` of its tokens.
    fn split(&mut self, id: NodeId, length: usize) -> NodeId {
        let node = self.node_mut(id);
        let rest = node.label.split_off(length);
        let head = std::mem::replace(&mut node.label, rest);
        let (token, parent, below, next) = (head[0], node.parent, node.trimmable_below, node.label[0]);
        let mut upper = Node::new(parent, head);
        upper.trimmable_below = below;
        upper.children.push((next, id));
        let upper = self.add(upper);
        self.node_mut(id).parent = upper;
        self.node_mut(parent).set_child(token, upper);
        upper
    }

    /// Removes a node that branches no more: its only child takes over its edge.
    fn merge(&mut self, id: NodeId) {
        let child = self.node(id).children[0].1;
        let parent = self.node(id).parent;
        let mut label = std::mem::take(&mut self.node_mut(id).label);
        let token = label[0];
        let node = self.node_mut(child);
        label.append(&mut node.label);
        node.label = label;
        node.parent = parent;
        self.node_mut(parent).set_child(token, child);
        self.release(id);
    }

    fn release(&mut self, id: NodeId) {
        *self.node_mut(id) = Node::new(ROOT, Vec::new());
        self.free.push(id);
    }

    fn count(&mut self, from: NodeId, by: isize) {
        let mut at = from;
        loop {
            let node = self.node_mut(at);
            node.trimmable_below = node.trimmable_below.saturating_add_signed(by);
            if at == ROOT {
                return;
            }
            at = node.parent;
        }
    }
}

/// Length of the common prefix.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_everything_leaves_only_the_root() {
        let mut trie = Trie::default();
        let keys: [&[u32]; 5] = [&[1, 2, 3, 4], &[1, 2, 5], &[1, 2], &[1, 2, 3, 4, 9, 9], &[7]];
        let nodes: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(i, key)| trie.insert(key, i, i % 2 == 0))
            .collect();
        for (node, key) in nodes.iter().zip(keys) {
            assert_eq!(trie.key(*node), key);
        }
        for node in nodes {
            trie.remove(node);
        }
        assert!(trie.is_empty());
        assert_eq!(trie.nodes(), 1);
        assert_eq!(trie.node(ROOT).trimmable_below, 0);
    }

    #[test]
    fn a_node_that_branches_no_more_is_merged_away() {
        let mut trie = Trie::default();
        let a = trie.insert(&[1, 2, 3], 'a', true);
        let b = trie.insert(&[1, 2, 4], 'b', false);
        assert_eq!(trie.nodes(), 4);
        trie.remove(b);
        assert_eq!(trie.nodes(), 2);
        assert_eq!(trie.key(a), [1, 2, 3]);
        assert_eq!(trie.trimmable_below(ROOT), Some('a'));
    }

    #[test]
    fn a_walk_ends_within_an_edge_where_the_tokens_part() {
        let mut trie = Trie::default();
        trie.insert(&[1, 2, 3, 4], 'a', true);
        let places = trie.walk(&[1, 2, 9]);
        assert_eq!(
            places
                .iter()
                .map(|place| (place.depth, place.entry))
                .collect::<Vec<_>>(),
            [(0, None), (2, None)]
        );
        assert_eq!(
            trie.walk(&[1, 2, 3, 4, 5])
                .last()
                .map(|place| (place.depth, place.entry)),
            Some((4, Some('a')))
        );
    }
}

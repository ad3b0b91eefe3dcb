//! Templates that would take all memory, all stack or all time are given up, with a word on why.

use super::templates::{note, text};

/// `{% set NAME = VALUE %}`, sixty times.
fn sixty(binding: &str) -> String {
    binding.repeat(60)
}

#[test]
fn a_namespace_cannot_hold_itself() {
    for use_of_it in [
        "{{ ns.s }}",
        "{{ 'a' ~ ns.s }}",
        "{{ ns.s|tojson }}",
        "{{ ns == ns.s }}",
        "{{ ns|pprint }}",
    ] {
        for held in ["ns", "[ns]", "{'a': [ns]}", "ns|items"] {
            for set in [
                "{% set ns.s = HELD %}",
                "{%\x0cset ns.s=HELD%}",
                "{#} {% ' #}{%- set (ns.s, x) = HELD, 1 -%}",
            ] {
                let set = set.replace("HELD", held);
                let source = format!("{{% set ns = namespace(a=[1]) %}}{set}{use_of_it}");
                assert!(note(&source).contains("too deeply"), "{source} {}", note(&source));
            }
        }
    }
    let by_filter = "{% set ns = namespace() %}{% set ns.s|default(ns, true) %}{% endset %}{{ ns }}";
    assert!(note(by_filter).contains("too deeply"));
    let renamed = "{% set __own = namespace %}{{ __own }}";
    assert!(note(renamed).contains("is taken"));
    for object in ["cycler(ns)", "joiner(ns)", "cycler([1])"] {
        let source = format!("{{% set ns = namespace() %}}{{% set ns.s = {object} %}}{{{{ ns.s }}}}");
        assert!(note(&source).contains("texts and numbers"), "{source}");
    }
}

#[test]
fn values_cannot_be_nested_without_end() {
    let by_loop =
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let by_hand = format!("{{% set x=[] %}}{}{{{{ x }}}}", "{%set x=[x]%}".repeat(9000));
    for source in [
        &format!("{by_loop}{{{{ ns.x }}}}"),
        &format!("{by_loop}{{{{ ns.x == [] }}}}"),
        by_loop,
        &by_hand,
    ] {
        assert!(note(source).contains("too deeply"), "{source:.60}");
    }
}

#[test]
fn values_that_hold_others_twice_cannot_grow_without_end() {
    let doublings = [
        format!("{{% set x=[1] %}}{}", sixty("{%set x=[x,x]%}")),
        format!("{{% set x=[1] %}}{}", sixty("{%set x=x+x%}")),
        format!("{{% set x=[1] %}}{}", sixty("{%- set x = {'a': x, 'b': x} -%}")),
        format!(
            "{{% set x=[1] %}}{}{}",
            sixty("{% with x=[x,x] %}"),
            sixty("{% endwith %}")
        ),
        format!(
            "{{% set x=[1] %}}{}{}",
            sixty("{% for x in [[x,x]] %}"),
            sixty("{% endfor %}")
        ),
        format!(
            "{{% set x=[1] %}}{}",
            sixty("{% set y=x %}{% set (x, z)=[y,y],1 %}")
        ),
    ];
    for doubling in doublings {
        let source = format!("{doubling}{{{{ x }}}}{{{{ 'a' ~ x }}}}");
        assert!(
            note(&source).contains("too large a value"),
            "{source:.60} {}",
            note(&source)
        );
    }
    let by_macro = "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f(1, 60) }}";
    let by_caller = "{% macro f(x, n) %}{% if n %}{% call(y) f(x, n - 1) %}{{ y }}{% endcall %}{% endif %}{{ caller([x, x]) }}\
                     {% endmacro %}{% call(y) f(['a' * 900000], 1) %}{{ y }}{% endcall %}";
    let by_loop = "{% for x in [1] recursive %}{{ loop([[x, x]]) }}{% endfor %}";
    assert!(note(by_macro).contains("too large a value"));
    for source in [by_caller, by_loop] {
        assert!(note(source).contains("failed"), "{source}");
    }
}

#[test]
fn filters_and_methods_cannot_make_gigabytes() {
    let text = "{% set s = 'a' * 700000 %}";
    for use_of_it in [
        "{{ ([s] * 30000)|join|length }}",
        "{{ ''.join([s] * 90000)|length }}",
        "{{ ('{0}' * 30000).format(s)|length }}",
        "{{ ('%(a)s' * 30000)|format(a=s)|length }}",
        "{{ ([s] * 90000)|unique|list|length }}",
        "{{ ([[1] * 1000] * 1000)|sum(start=[])|length }}",
    ] {
        let note = note(&format!("{text}{use_of_it}"));
        assert!(note.contains("too large a"), "{use_of_it} {note}");
    }
}

#[test]
fn formats_cannot_ask_for_gigabytes() {
    for source in [
        "{{ '{:9000000000}'.format(1) }}",
        "{{ '{:.9000000000f}'.format(1.5) }}",
    ] {
        assert!(note(source).contains("9000000000 characters"), "{source}");
    }
    assert!(note("{{ '%9000000000d'|format(1) }}").contains("fuel"));
    assert!(note("{{ 'a'.center(9000000000) }}").contains("fuel"));
}

#[test]
fn sources_that_the_compiler_would_not_survive_are_refused() {
    let elif = |count| format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(count));
    assert_eq!(text(&(elif(9_000) + "ok"), &[]), "ok");
    assert!(note(&elif(20_000)).contains("too large"));
    assert!(note(&format!("{{{{ 1{} }}}}", "~1".repeat(100_000))).contains("too large"));
    assert!(note(&"x".repeat(300_000)).contains("300000 bytes"));
}

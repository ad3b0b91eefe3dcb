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
    ] {
        for held in ["ns", "[ns]", "{'a': [ns]}"] {
            let source = format!("{{% set ns = namespace() %}}{{% set ns.s = {held} %}}{use_of_it}");
            assert!(note(&source).contains("cannot hold another"), "{source}");
        }
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

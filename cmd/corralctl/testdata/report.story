# Hooks of an agent report what it does. Outside of a session they do nothing, silently, and they
# never fail.

$ corralctl report working && corralctl report waiting --reason=question --message='Which?' && echo '{"session_id":"a"}' | corralctl report idle -

$ corralctl report sleeping
corralctl: report: expected one of working, waiting, idle
hint: corralctl help report

$ corralctl report waiting --reason=boredom
corralctl: unknown reason "boredom"; known are: permission question auth blocked setup limit turn-ended error
hint: corralctl help report

$ corralctl report --from eliza
corralctl: unknown agent "eliza" for --from; known are: claude codex copilot gemini opencode qwen
hint: corralctl help report

$ corralctl report --from claude Stop now </dev/null
corralctl: report: expected one EVENT with --from, not 2 words
hint: corralctl help report

$ echo '{"hook_event_name":"Stop"}' | corralctl report --from claude && corralctl report --from codex '{"type":"agent-turn-complete"}'

$ corralctl report --nonsense
corralctl: unknown option "--nonsense"
hint: corralctl help report

# The same without a daemon, or without a bus.
$ DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent corralctl report working
$ corralctl run -q --id lost --wait -E DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent -- corralctl report working && corralctl logs lost

# Within a session a report sets what it waits for, what it asks, and the conversation to resume.
$ mkdir -p ~/config/corral/agents && printf '[Agent]\nCommand=sh %%h/asks\nIdSource=report\n' >~/config/corral/agents/asker.agent && corralctl reload
$ printf 'echo "$PAYLOAD" | corralctl report waiting -; sleep 1000' >~/asks
$ corralctl run -q --id asks -E PAYLOAD='{"session_id":"c-17","message":"May I?","notification_type":"permission_prompt"}' asker && corralctl wait --until=waiting asks

$ corralctl show -p Activity,Attention,AttentionMessage,AttentionSource,ConversationId asks
Activity=waiting
Attention=permission
AttentionMessage=May I?
AttentionSource=report
ConversationId=c-17

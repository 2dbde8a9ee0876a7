// Tells Corral what opencode does: a plugin, for which each event that counts is handed to corralctl report. In a session of Corral alone.
import { spawn } from "node:child_process"

const told = new Set([
  "session.created", "session.status", "session.idle", "session.error",
  "permission.asked", "permission.replied", "question.asked", "question.replied",
])

const report = (event) => new Promise((resolve) => {
  const corralctl = spawn("corralctl", ["report", "--from", "opencode"], { stdio: ["pipe", "ignore", "ignore"] })
  corralctl.on("error", resolve)
  corralctl.on("close", resolve)
  corralctl.stdin.on("error", () => {})
  corralctl.stdin.end(JSON.stringify(event))
})

export const Corral = async () => {
  const children = new Set() // conversations that an agent has with another one
  let last = Promise.resolve()
  return {
    event: async ({ event }) => {
      if (!told.has(event.type) || !process.env.CORRAL_SESSION) return
      const properties = { ...event.properties }
      if (properties.info?.parentID) children.add(properties.info.id)
      if (children.has(properties.sessionID ?? properties.info?.id)) {
        if (event.type.startsWith("session.")) return // it is not its end that counts
        delete properties.sessionID // but a person has to answer what it asks
      }
      last = last.then(() => report({ type: event.type, properties })) // in order
    },
  }
}

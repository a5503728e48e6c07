"""The data that stages pass to each other: frames, records, registries; no logic of a stage.

Of a report: `reports`, `ranges`, `device_work` and `host_events`, all of them `events`. Of a
database: `tables`, `compared_tables` and the `columns` of both. `schema` has the frames of stages,
`results` what a comparison gives, `options` what users choose. `kinds` and `metrics` are the names
in all of these, `arrays` and `intervals` arithmetic on columns.
"""

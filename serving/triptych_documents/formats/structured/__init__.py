"""JSON and YAML files, such as the message files of applications; Markdown uses YAML for front matter."""
